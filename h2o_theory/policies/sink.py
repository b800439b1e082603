"""Attention sinks and a sliding window."""

from dataclasses import dataclass
from typing import ClassVar

from h2o_theory.policies.base import Parts, Policy, sinks_within, whole_number
from h2o_theory.policies.registry import register

__all__ = ["Sink"]


@register
@dataclass(frozen=True)
class Sink(Policy):
    r"""Keep the first tokens and the most recent ones.

    .. math:: S_t = \{0, \dots, s-1\} \cup \{t-(k-s)+1, \dots, t\}, \qquad s = n_{sink}.

    Below a budget of 5 the default of 4 sinks shrinks to k - 1. No guarantee is known.

    Source: StreamingLLM, arXiv 2309.17453 (4 sinks). Departure: keys keep the positions they
    were recorded with; StreamingLLM re-indexes positions within the cache, which changes logits.
    """

    name: ClassVar[str] = "sink"
    needs: ClassVar[str] = "positions"
    source: ClassVar[str] = "StreamingLLM, arXiv 2309.17453"

    n_sink: int = 4

    def __post_init__(self):
        whole_number(self, "n_sink", 0)

    def parts(self, budget):
        """Sinks, and the rest recent."""
        n_sink = sinks_within(self, self.n_sink, budget, default=4)
        return Parts(n_sink, 0, budget - n_sink)
