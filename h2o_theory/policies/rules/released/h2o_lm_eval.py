"""H2O as the released few-shot evaluation masks it: newcomers get one row to prove themselves."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from numba import njit

from h2o_theory.policies.base import CompiledPolicy, Context
from h2o_theory.policies.parts import Parts, part_of
from h2o_theory.policies.registry import register

__all__ = ["H2OLmEval"]

SELECTED = 0
"""Place of the mark of a selected entry among what is kept with it."""


class Settings(NamedTuple):
    most: int


@njit(cache=True, nogil=True)
def observe_selected(t, n, cache, row, settings):
    """Accumulate over the selected entries, then deselect the weakest if there are enough."""
    selected, weakest = 0, -1
    for i in range(n):
        if cache.position[i] == t:
            cache.entry[i, SELECTED] = 1.0
        if cache.entry[i, SELECTED] == 0.0:
            continue
        selected += 1
        cache.score[i] += row[i]
        if (
            weakest < 0
            or cache.score[i] < cache.score[weakest]
            or (
                cache.score[i] == cache.score[weakest]
                and cache.position[i] < cache.position[weakest]
            )
        ):
            weakest = i
    if selected >= settings.most:
        cache.score[weakest] = 0.0
        cache.entry[weakest, SELECTED] = 0.0


@register
@dataclass(frozen=True)
class H2OLmEval(CompiledPolicy):
    r"""Keep a window, and a selection by accumulated attention that it does not protect.

    .. math:: T_t = \mathrm{top}_{hb-1}(acc;\ T_{t-1}) \cup \{t\}, \quad
              acc \leftarrow (acc + A[t, \cdot]) \, 1[T_t], \quad
              V_t = T_t \cup \{t - rb, \dots, t\}

    A token is selected when it arrives and competes after a single row against sums; deselected,
    it has score 0 for good and is seen only until it leaves the window. k = hb + rb.

    Source: FMInference/H2O, ``utils_lm_eval`` for OPT and GPT-NeoX, probably behind most of the
    few-shot curves. No guarantee known. O(k) per step. Departures: (1) the mask leaves places
    empty where selection and window overlap; here deselected entries stay, the oldest going first,
    until a place is needed, so that S_t contains V_t; (2) the mask can bring back a deselected
    entry where scores tie at exactly 0, which no cache can; (3) the code takes hb and rb as shares
    of prompt and continuation together, here of the budget.

    Parameters
    ----------
    recent : float
        rb as a share of the budget, rounded down.
    """

    name: ClassVar[str] = "h2o_lm_eval"
    source: ClassVar[str] = "FMInference/H2O utils_lm_eval"
    observe: ClassVar = observe_selected
    rows: ClassVar[str] = "raw"

    recent: float = 0.5

    def parts(self, budget):
        """The window holds rb + 1 entries, the query's own included."""
        n_recent = min(part_of(self.recent, budget), budget - 1) + 1
        return Parts(0, budget - n_recent, n_recent)

    def settings(self, context: Context) -> Settings:
        """hb, the selected entries."""
        return Settings(context.budget - self.parts(context.budget).n_recent + 1)

    def sizes(self, context):
        """Whether the entry is selected."""
        return 1, 0
