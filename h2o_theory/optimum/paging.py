"""The optimum when evicted entries may be fetched back: paging, for offloaded KV caches.

Another problem than the rest of this package: here a reference to an entry that is not held is
a miss, which reloads it at a cost, and need not keep it (bypass). Keeping key j from one reference
to its next is one *gap*; it takes a slot between the rows of the two and saves one reload. So the
optimum packs gaps, intervals with weights, on k-1 slots: their matrix has consecutive ones, hence
is totally unimodular, and the optimum is a min-cost flow with one node per row and one arc per gap.
"""

from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from h2o_theory.annotations import IntArray
from h2o_theory.errors import BadArgument
from h2o_theory.optimum.arguments import require_budget, require_prefill
from h2o_theory.optimum.fixed_point import require_fixed_point
from h2o_theory.optimum.gaps import drop_last_ending, pack

__all__ = ["Paging", "belady_min", "weighted_paging"]


@dataclass(frozen=True, eq=False)
class Paging:
    """An optimal choice of the gaps through which keys are held (read-only).

    Attributes
    ----------
    budget, prefill : int
        k and p; between two scored rows k-1 entries are held.
    keys, starts, ends : numpy.ndarray [n] int64
        Gap i: key ``keys[i]`` is referenced by row ``ends[i]`` and was last there in row
        ``starts[i]`` (its own row, or the last of the prefill, if it was not referenced between).
    weights : numpy.ndarray [n] int64
        What holding the key through the gap saves.
    kept : numpy.ndarray [n] bool
        Whether it is held: the reference is a hit.
    prices : numpy.ndarray [T - 1] int64, or None
        Price of a slot between rows t and t + 1. Then ``bound`` follows by weak duality;
        None where optimality rests on the theorem alone.
    method : str
        How it was obtained.
    """

    budget: int
    prefill: int
    keys: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    weights: np.ndarray
    kept: np.ndarray
    prices: np.ndarray | None
    method: str

    @property
    def references(self) -> int:
        """Number of references by scored rows to keys other than their own."""
        return self.kept.size

    @property
    def hits(self) -> int:
        """References that find their key held."""
        return int(self.kept.sum())

    @property
    def hit_rate(self) -> float:
        """Hits over references; NaN if there are none."""
        return self.hits / self.references if self.references else float("nan")

    @property
    def saved(self) -> int:
        """Total weight of the hits: what is optimal."""
        return sum(self.weights[self.kept].tolist())

    @property
    def cost(self) -> int:
        """Total weight of the misses."""
        return sum(self.weights[~self.kept].tolist())

    @property
    def bound(self) -> int:
        """No choice saves more: slots paid for, and what gaps save above their price; or None.

        ``(k-1) * sum(prices) + sum over gaps of max(0, weight - prices from start to end)``.
        """
        if self.prices is None:
            return None
        paid = np.concatenate([[0], np.cumsum(self.prices)])
        above = np.maximum(self.weights - (paid[self.ends] - paid[self.starts]), 0)
        return (self.budget - 1) * int(paid[-1]) + sum(above.tolist())


def belady_min(accesses: ArrayLike, budget: int, *, prefill: int = 0) -> Paging:
    """Fewest misses with refetch and bypass: hold what is referenced again soonest.

    Whenever more than k-1 keys are to be held between two rows, drop the one whose next reference
    is farthest; keys that are never referenced again are not held at all.

    Theorem. With unit costs this saves the most reloads (the greedy for packing intervals on
    several machines).

    Parameters
    ----------
    accesses : numpy.ndarray [T, T] bool
        ``accesses[t, j]``: row t references key j <= t. A key is present in its own row anyway.
    budget : int
        k, 1 .. T: the query's own entry counts, so k-1 entries are held between rows.
    prefill : int
        p, 0 .. T: references by rows ``0 .. p-1`` do not count; their keys are there in row p-1.

    Returns
    -------
    Paging
        All weights 1. Among equals the lowest position is dropped.

    Raises
    ------
    BadArgument
        ``accesses`` is not a causal boolean matrix, or a number is not an integer.
    BadBudget, OutOfRange
        ``budget`` or ``prefill`` is out of range.

    Notes
    -----
    O(T^2 + n log n) time for n gaps.

    Source: Belady 1966 (MIN). Optimality with bypass: Carlisle, Lloyd 1995; Faigle, Nawijn 1995
    (interval packing). Departure: several references in one row, as attention makes them.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.1, 0.7, 0.2, 0], [0.6, 0.1, 0.1, 0.2]])
    >>> paging = belady_min(rows >= 0.5, 2)
    >>> paging.hits, paging.references
    (2, 3)
    """
    accesses = np.asarray(accesses)
    if accesses.dtype != bool:
        raise BadArgument(
            "accesses must be a boolean matrix, such as weights >= threshold",
            got=f"shape {list(accesses.shape)} of {accesses.dtype}",
        )
    budget, prefill, gaps = _gaps(accesses.astype(np.int64), budget, prefill)
    keys, starts, ends, _ = gaps
    kept = drop_last_ending(keys, starts, ends, len(accesses), budget - 1)
    return _frozen(budget, prefill, gaps, kept, None, "Belady MIN with bypass")


def weighted_paging(weights: ArrayLike, budget: int, *, prefill: int = 0) -> Paging:
    """Largest saving with refetch and bypass when reloads have different costs, exactly.

    ::

        max  sum of weights[t, j] over the references (t, j) whose key is held,

    at most k-1 keys held between two rows, every key from the rows that reference it only.

    Parameters
    ----------
    weights : numpy.ndarray [T, T] int64
        ``weights[t, j]`` > 0: row t references key j, and a hit saves this much; 0: it does not.
    budget, prefill : int
        As in :func:`belady_min`.

    Returns
    -------
    Paging
        With prices; ``saved == bound`` proves it optimal.

    Raises
    ------
    BadArgument, InvalidAttention
        ``weights`` is not causal, non-negative int64 with a sum below 2**60, or a number is not
        an integer.
    BadBudget, OutOfRange
        ``budget`` or ``prefill`` is out of range.

    Notes
    -----
    O(k (T^2 + n)) time for n gaps, O(T^2 + n) memory.

    Source: min-cost flow for interval scheduling on k machines (Arkin, Silverberg 1987) and for
    weighted caching (Chrobak, Karloff, Payne, Vishwanathan 1991).
    """
    weights = require_fixed_point(weights)
    budget, prefill, gaps = _gaps(weights, budget, prefill)
    _, starts, ends, gap_weights = gaps
    kept, prices = pack(starts, ends, gap_weights, len(weights), budget - 1)
    paging = _frozen(budget, prefill, gaps, kept, prices, "min-cost flow over gaps")
    assert paging.saved == paging.bound, "not optimal"
    return paging


def _gaps(
    weights: IntArray, budget: SupportsIndex, prefill: SupportsIndex
) -> tuple[int, int, tuple[IntArray, ...]]:
    """Budget, prefill and gaps (keys, starts, ends, weights), sorted by start, then by key."""
    weights = require_fixed_point(weights)
    tokens = len(weights)
    prefill = require_prefill(prefill, tokens)
    budget = require_budget(budget, tokens, "budget")
    keys, ends = np.nonzero(np.tril(weights, -1)[max(prefill, 1) :].T)
    ends = ends + max(prefill, 1)
    starts = np.maximum(keys, prefill - 1)
    again = np.flatnonzero(keys[1:] == keys[:-1]) + 1
    starts[again] = ends[again - 1]
    order = np.argsort(starts, kind="stable")
    keys, starts, ends = keys[order], starts[order], ends[order]
    return budget, prefill, (keys, starts, ends, weights[ends, keys])


def _frozen(
    budget: int,
    prefill: int,
    gaps: tuple[IntArray, ...],
    kept: NDArray[np.bool_],
    prices: IntArray | None,
    method: str,
) -> Paging:
    """The result, its arrays read-only."""
    for array in (*gaps, kept, *(() if prices is None else (prices,))):
        array.flags.writeable = False
    return Paging(budget, prefill, *gaps, kept, prices, method)
