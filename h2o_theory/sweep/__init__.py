"""Sweeps: a grid of replays over traces, resumable, spread over processes, machines or shards."""

from h2o_theory.sweep.estimate import Estimate, estimate_sweep
from h2o_theory.sweep.run import SweepResult, run_sweep
from h2o_theory.sweep.spec import SweepSpec, read_spec

__all__ = [
    "Estimate",
    "SweepResult",
    "SweepSpec",
    "estimate_sweep",
    "read_spec",
    "run_sweep",
]
