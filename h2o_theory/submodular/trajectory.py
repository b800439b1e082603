"""A schedule as a sequence of retained sets, checked to be what an eviction policy may do."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from h2o_theory.annotations import IntArray
from h2o_theory.errors import BadArgument, BadBudget
from h2o_theory.optimum.arguments import require_budget, require_prefill

__all__ = ["Trajectory", "steps_with_a_choice", "visible_sets"]


def visible_sets(evicted_at: ArrayLike, tokens: int) -> NDArray[np.bool_]:
    """bool [T, T]: whether row t sees key j, iff ``j <= t <= evicted_at[j]``.

    Raises
    ------
    BadArgument
        ``evicted_at`` is no step of at least j for each token j.
    """
    evicted_at = np.asarray(evicted_at)
    position = np.arange(tokens)
    usable = evicted_at.shape == (tokens,) and evicted_at.dtype.kind in "iu"
    if not usable or (evicted_at < position).any():
        raise BadArgument(
            f"evicted_at must be {tokens} integers, evicted_at[j] at least j",
            got=f"shape {list(evicted_at.shape)} of {evicted_at.dtype}",
        )
    return (position <= position[:, None]) & (position[:, None] <= evicted_at)


class Trajectory:
    """The retained sets R_t of a schedule, from the last step before its cache is full.

    Parameters
    ----------
    evicted_at : array_like [T]
        Key j is visible to row t iff ``j <= t <= evicted_at[j]``.
    tokens : int
        T.
    budget : int
        k, 2 .. T: entries a query sees, its own included. The H2O paper's k is ``size``.
    prefill : int
        p: rows ``0 .. p-1`` see everything, and one cut follows.

    Attributes
    ----------
    size : int
        ``budget - 1``: most entries retained.
    first : int
        The last step with nothing to choose: ``max(budget - 2, prefill - 1)``.
    steps : range
        ``first .. T-2``. The last step is left out: what is retained after it serves no row.

    Raises
    ------
    BadArgument
        The schedule exceeds the budget, or gives up two entries in one step.
    BadBudget
        The budget is below 2 or above T, or so large that no entry is ever given up.
    """

    def __init__(self, evicted_at: ArrayLike, tokens: int, budget: int, prefill: int = 0) -> None:
        self._visible = visible_sets(evicted_at, tokens)
        self._evicted_at = np.asarray(evicted_at)
        self.steps = steps_with_a_choice(tokens, budget, prefill)
        self.budget, self.first = int(budget), self.steps[0]
        self.size = self.budget - 1
        self._require_feasible()

    def retained(self, step: int) -> IntArray:
        """R_t, int64 ascending."""
        return np.flatnonzero(self._visible[step] & (self._evicted_at > step))

    def visible(self, step: int) -> IntArray:
        """S_t, int64 ascending."""
        return np.flatnonzero(self._visible[step])

    def _require_feasible(self) -> None:
        seen = self._visible[self.first + 1 :].sum(axis=1)
        if seen.max() > self.budget:
            t = self.first + 1 + int(seen.argmax())
            raise BadArgument(
                f"the schedule must stay within its budget of {self.budget}",
                where=f"evicted_at, row {t}",
                got=f"{seen.max()} visible entries",
            )
        later = self._evicted_at[(self._evicted_at > self.first)]
        leaving = np.bincount(later[later < len(self._evicted_at)])
        if leaving.size and leaving.max() > 1:
            raise BadArgument(
                "the schedule must evict at most one entry in a step",
                where=f"evicted_at, step {int(leaving.argmax())}",
                got=leaving.max(),
            )


def steps_with_a_choice(tokens: int, budget: int, prefill: int = 0) -> range:
    """The steps of :class:`Trajectory`, its first among them.

    Raises
    ------
    BadBudget
        There are fewer than two.
    """
    budget = require_budget(budget, tokens, "budget")
    prefill = require_prefill(prefill, tokens)
    steps = range(max(budget - 2, prefill - 1, 0), tokens - 1)
    if budget < 2 or len(steps) < 2:
        raise BadBudget(
            "budget must be at least 2 and leave two rows beyond it and the prefill to measure",
            got=f"budget {budget}, prefill {prefill}, {tokens} tokens",
        )
    return steps
