"""The H2O paper's Algorithm 1, in three readings."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from numba import njit

from h2o_theory.policies.base import CompiledPolicy, Context
from h2o_theory.policies.checks import require_one_of
from h2o_theory.policies.registry import register

__all__ = ["Algorithm1"]

READINGS = ("literal", "accumulated", "intent")
LITERAL, ACCUMULATED, INTENT = range(3)


class Settings(NamedTuple):
    reading: int


@njit(cache=True, nogil=True)
def observe_algorithm1(t, n, cache, row, settings):
    """The row over the older entries alone, the newcomer getting 0; or the whole visible row."""
    older = 0.0
    for i in range(n):
        if cache.position[i] != t:
            older += row[i]
    for i in range(n):
        if settings.reading == LITERAL:
            cache.score[i] = 0.0
        if settings.reading == INTENT:
            cache.score[i] += row[i]
        elif cache.position[i] != t and older > 0.0:
            cache.score[i] += row[i] / older


@register
@dataclass(frozen=True)
class Algorithm1(CompiledPolicy):
    r"""Evict what adds least to the sum of one attention row, as the paper's box says it.

    With S the retained set before step t and o_t the row normalised over S,

    .. math:: u_t = \arg\max_{v \in G} \sum_{s \in G \setminus \{v\}} o_t(s)
              = \arg\min_{v \in G} o_t(v), \qquad G = S \cup \{t\}

    ``literal``: the newcomer is absent from S, so :math:`o_t(t) = \exp(0) - 1 = 0` and it always
    leaves: the first k - 1 tokens stay for ever. ``accumulated``: o_t summed over the rows, as a
    remark in the appendix explains it; the newcomer still has 0. ``intent``: normalised over G
    and summed, which is ``heavy``.

    Source: arXiv 2306.14048, Algorithm 1 and Remark D.15. No guarantee that says anything: see
    the paper's Theorem 4.4. O(k) per step. Departures: the budget counts the query's own entry
    (the box's k is k - 1 here); an entry whose row underflows to 0 ties with the newcomer and, as
    the older one, leaves.

    Parameters
    ----------
    reading : {"literal", "accumulated", "intent"}
    group : {"mean", "sum", "max", "first"}
    """

    name: ClassVar[str] = "algorithm1"
    source: ClassVar[str] = "arXiv 2306.14048, Algorithm 1"
    observe: ClassVar = observe_algorithm1

    reading: str = "literal"
    group: str = "mean"

    def __post_init__(self):
        super().__post_init__()
        require_one_of(self, "reading", READINGS)

    def settings(self, context: Context) -> Settings:
        """Which reading."""
        return Settings(READINGS.index(self.reading))
