"""Greedy submodular eviction: drop what costs the past rows least, with diminishing returns."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numba import njit

from h2o_theory.policies.base import CompiledPolicy, Context
from h2o_theory.policies.checks import require_one_of
from h2o_theory.policies.registry import register

__all__ = ["CONCAVE", "Greedy"]

CONCAVE = ("sqrt", "log", "cap")
SQRT, LOG, CAP = range(3)


class Settings(NamedTuple):
    concave: int


@njit(cache=True, nogil=True)
def _concave(kind, mass):
    if kind == SQRT:
        return np.sqrt(mass)
    if kind == LOG:
        return np.log1p(mass)
    return min(mass, 0.5)


@njit(cache=True, nogil=True)
def observe_history(t, n, cache, row, settings):
    """Remember the row, entry by entry."""
    for i in range(n):
        cache.entry[i, t] = row[i]


@njit(cache=True, nogil=True)
def rate_loss(t, n, cache, future, settings):
    """The score is the loss of f if the entry left."""
    kind = settings.concave
    mass, value = cache.memory[: t + 1], cache.memory[t + 1 : 2 * t + 2]
    mass[:] = 0.0
    for i in range(n):
        mass += cache.entry[i, : t + 1]
    for s in range(t + 1):
        value[s] = _concave(kind, mass[s])
    for i in range(n):
        loss = 0.0
        for s in range(cache.position[i], t + 1):
            loss += value[s] - _concave(kind, max(mass[s] - cache.entry[i, s], 0.0))
        cache.score[i] = loss


@register
@dataclass(frozen=True)
class Greedy(CompiledPolicy):
    r"""Removal greedy for a coverage of the past rows with diminishing returns.

    .. math:: f_t(S) = \sum_{t' \le t} h\Big( \sum_{j \in S} r_{t'}(j) \Big), \qquad
              u_t = \arg\min_{j \in S_t} \; f_t(S_t) - f_t(S_t \setminus \{j\})

    with h concave and increasing: ``sqrt``, ``log`` (:math:`\log(1 + m)`) or ``cap``
    (:math:`\min(m, 1/2)`). f_t is monotone submodular. h stands inside the sum over rows: outside
    it, as the paper writes it, h cannot change which entry leaves.

    Guarantee: removal greedy has none of its own here; build greedy would have 1 - 1/e for one
    fixed f_t. O(k t) per eviction, 8 k T bytes of state.

    Source: the submodular reading of arXiv 2306.14048, section 4. Departure: h inside the sum.

    Parameters
    ----------
    h : {"sqrt", "log", "cap"}
    rows : {"raw", "renormalised"}
        Raw rows make f a function of retained mass.
    group : {"mean", "sum", "max", "first"}
    """

    name: ClassVar[str] = "greedy"
    source: ClassVar[str] = "submodular reading of arXiv 2306.14048"
    observe: ClassVar = observe_history
    rate: ClassVar = rate_loss

    h: str = "sqrt"
    rows: str = "raw"
    group: str = "mean"

    def __post_init__(self):
        super().__post_init__()
        require_one_of(self, "h", CONCAVE)

    def settings(self, context: Context) -> Settings:
        """Which h."""
        return Settings(CONCAVE.index(self.h))

    def sizes(self, context):
        """A history of T rows per entry, and two work rows for the head."""
        return context.tokens, 2 * context.tokens
