"""A schedule: which entry leaves when, what it is worth, and the prices that prove it optimal."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from h2o_theory.annotations import IntArray

__all__ = ["Schedule", "first_shared_row", "keep_slots_full"]


@dataclass(frozen=True, eq=False)
class Schedule:
    """One offline eviction schedule, the dual prices that bound the optimum, and how it was found.

    Everything here is what the solver states; :func:`check_certificate` recomputes it from the
    rows. Arrays are read-only.

    Attributes
    ----------
    budget : int
        k, the KV entries a query may see, its own included.
    prefill : int
        Rows ``0 .. prefill-1`` see everything and are not scored.
    value : int
        Retained mass summed over the scored rows, in units of ``2**-fraction_bits``.
    evicted_at : numpy.ndarray [T] int64
        Key j is visible to row t iff ``j <= t <= evicted_at[j]``; T means never evicted.
    prices : numpy.ndarray [T - max(prefill, 1)] int64
        Price of one retained slot during row ``max(prefill, 1) + i``, in the units of ``value``.
        Zero wherever a slot is to spare.
    bound : int
        No schedule of this budget retains more, by weak duality at ``prices``; same units.
    method : str
        How schedule and prices were obtained.
    """

    budget: int
    prefill: int
    value: int
    evicted_at: np.ndarray
    prices: np.ndarray
    bound: int
    method: str

    @property
    def gap(self) -> int:
        """``bound - value``: by how much the optimum may exceed this schedule; 0 if optimal."""
        return self.bound - self.value

    @property
    def status(self) -> str:
        """``"optimal"`` if the bound is met, else ``"feasible"``."""
        return "optimal" if self.gap == 0 else "feasible"


def first_shared_row(prefill: int) -> int:
    """The first scored row that sees retained entries: row 0 has only its own."""
    return max(prefill, 1)


def keep_slots_full(planned: Sequence[int] | IntArray, budget: int, prefill: int) -> IntArray:
    """Turn planned ends into evictions that happen only when the visible set is full.

    ``planned[j]`` is the last row that has to see key j. An optimal plan may drop an entry of no
    further worth early. The rule of a replay step evicts one entry when ``|S_t| = k`` and none
    before; with the earliest planned end as victim (the lowest position among equals) every entry
    still planned for stays, because at most k-1 of them are retained at a time. So nothing is
    lost. Entries visible to the last row are never evicted.

    Parameters
    ----------
    planned : sequence of int [T]
    budget, prefill : int

    Returns
    -------
    numpy.ndarray [T] int64
        ``evicted_at``. O(T log T) time.
    """
    tokens = len(planned)
    evicted_at = np.full(tokens, tokens, dtype=np.int64)
    visible = []
    for t in range(tokens - 1):
        heappush(visible, (int(planned[t]), t))
        if t < prefill - 1:
            continue
        while len(visible) > budget - 1:
            evicted_at[heappop(visible)[1]] = t
    return evicted_at
