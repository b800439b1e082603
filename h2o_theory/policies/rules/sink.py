"""Attention sinks and a sliding window."""

from dataclasses import dataclass
from typing import ClassVar

from h2o_theory.policies.base import CompiledPolicy
from h2o_theory.policies.checks import require_one_of
from h2o_theory.policies.parts import Parts, sinks_within
from h2o_theory.policies.registry import register

__all__ = ["Sink"]


@register
@dataclass(frozen=True)
class Sink(CompiledPolicy):
    r"""Keep the first tokens and the most recent ones.

    .. math:: S_t = \{0, \dots, s-1\} \cup \{t-(k-s)+1, \dots, t\}, \qquad s = n_{sink}.

    Below a budget of 5 the default of 4 sinks shrinks to k - 1. No guarantee is known. O(1) state
    beyond the set.

    Source: StreamingLLM, arXiv 2309.17453 (4 sinks). It counts positions within the cache, which
    changes logits: ``positions=slot``. The sets and the retained mass, which is a matter of the
    recorded rows, are the same; output error and KL are then those of the rows that such a cache
    computes (:mod:`h2o_theory.engine.slots`), O(G k d) per step. Departure: keys keep the positions
    they were recorded with unless asked otherwise.

    Parameters
    ----------
    n_sink : int
        The default shrinks to fit.
    positions : {"original", "slot"}
        Slot positions need a trace with queries, keys, values and a known rotary embedding.
    """

    name: ClassVar[str] = "sink"
    needs: ClassVar[str] = "positions"
    source: ClassVar[str] = "StreamingLLM, arXiv 2309.17453"

    n_sink: int = 4
    positions: str = "original"

    def __post_init__(self):
        super().__post_init__()
        require_one_of(self, "positions", ("original", "slot"))

    def parts(self, budget):
        """Sinks, and the rest recent."""
        n_sink = sinks_within(self, self.n_sink, budget, default=4)
        return Parts(n_sink, 0, budget - n_sink)
