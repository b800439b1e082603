"""Greedy submodular eviction: drop what costs the past rows least, with diminishing returns."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from h2o_theory.policies.base import GROUP_REDUCTIONS, ROWS, CompiledPolicy
from h2o_theory.policies.checks import require_one_of
from h2o_theory.policies.registry import register

__all__ = ["CONCAVE", "Greedy"]

CONCAVE = ("sqrt", "log", "cap")


@njit(cache=True, nogil=True)
def _concave(kind, mass):
    if kind == 0:
        return np.sqrt(mass)
    if kind == 1:
        return np.log1p(mass)
    return min(mass, 0.5)


@njit(cache=True, nogil=True)
def observe_history(t, n, position, row, score, per_slot, memory, settings):
    """Remember the row, entry by entry."""
    for i in range(n):
        per_slot[i, t] = row[i]


@njit(cache=True, nogil=True)
def rate_loss(t, b, n, position, score, per_slot, memory, table, settings):
    """The score is the loss of f if the entry left."""
    kind = int(settings[0])
    mass, value = memory[: t + 1], memory[t + 1 : 2 * t + 2]
    mass[:] = 0.0
    for i in range(n):
        mass += per_slot[i, : t + 1]
    for s in range(t + 1):
        value[s] = _concave(kind, mass[s])
    for i in range(n):
        loss = 0.0
        for s in range(position[i], t + 1):
            loss += value[s] - _concave(kind, max(mass[s] - per_slot[i, s], 0.0))
        score[i] = loss


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
        require_one_of(self, "h", CONCAVE)
        require_one_of(self, "rows", ROWS)
        require_one_of(self, "group", GROUP_REDUCTIONS)

    def settings(self, context):
        """Which h."""
        return np.array([float(CONCAVE.index(self.h))])

    def sizes(self, context):
        """A history of T rows per entry, and two work rows for the head."""
        return context.tokens, 2 * context.tokens
