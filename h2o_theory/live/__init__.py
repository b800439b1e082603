"""The closed loop: eviction inside a running model, seen by deeper layers and later tokens."""

from h2o_theory.live.bleu import self_bleu
from h2o_theory.live.evaluate import FullRun, LiveResult, evaluate, full_run
from h2o_theory.live.generate import Generation, generate
from h2o_theory.live.loop import ClosedLoop, closed_loop

__all__ = [
    "ClosedLoop",
    "FullRun",
    "Generation",
    "LiveResult",
    "closed_loop",
    "evaluate",
    "full_run",
    "generate",
    "self_bleu",
]
