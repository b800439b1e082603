"""Sparsity and support of the rows of one kv_head, counted as they stream by."""

from dataclasses import dataclass

import numpy as np
from numba import njit

__all__ = ["MASSES", "RowTally", "RowTallies", "distance_bins"]

MASSES = (0.90, 0.95, 0.99)
"""Shares of a row's mass for which the least number of keys is counted."""


@dataclass(frozen=True)
class RowTallies:
    """Counts over the rows of the G query heads of one kv_head.

    Attributes
    ----------
    below : int array [G, T]
        Causal entries of each row below the threshold times the row's maximum.
    support : int array [G, T, 3]
        Keys that together hold :data:`MASSES` of the row.
    sink_mass : array [G, T]
        Attention of each row on the sinks.
    distance_below, distance_entries : int array [B]
        Sparse and all causal entries by distance t - j, binned by :func:`distance_bins`, all
        query heads together.
    distance_mass : array [B]
        Attention by distance.
    """

    below: np.ndarray
    support: np.ndarray
    sink_mass: np.ndarray
    distance_below: np.ndarray
    distance_entries: np.ndarray
    distance_mass: np.ndarray


def distance_bins(tokens):
    """Bin of each distance 0 .. T - 1, and the bins' names: 0, 1, 2-3, 4-7, 8-15, ..."""
    distance = np.arange(tokens)
    bins = np.zeros(tokens, dtype=np.int64)
    bins[1:] = np.floor(np.log2(distance[1:])).astype(np.int64) + 1
    names = ["0", *(f"{2**b}-{2 ** (b + 1) - 1}" if b else "1" for b in range(bins.max()))]
    return bins, names


class RowTally:
    """Counts entries block by block.

    Parameters
    ----------
    group, tokens : int
    threshold : float
        Share of the row's maximum below which an entry counts as sparse.
    n_sink : int
        First positions that are sinks.
    """

    def __init__(self, group, tokens, threshold, n_sink):
        self._threshold, self._n_sink = threshold, n_sink
        self._sink_mass = np.zeros((group, tokens))
        self._bins, names = distance_bins(tokens)
        self._below = np.zeros((group, tokens), dtype=np.int64)
        self._support = np.zeros((group, tokens, len(MASSES)), dtype=np.int64)
        self._distance = np.zeros((3, len(names)))

    def add(self, rows, start):
        """Take rows [G, n, T] from step ``start`` on."""
        group, count, _ = rows.shape
        width = start + count
        self._sink_mass[:, start:width] = rows[:, :, : self._n_sink].sum(axis=-1)
        # numpy's vectorised sort is several times quicker than one inside the compiled loop.
        ordered = np.sort(rows[:, :, :width], axis=-1)
        for g in range(group):
            _tally(
                rows[g], ordered[g], start, self._threshold, np.array(MASSES), self._bins,
                self._below[g], self._support[g], self._distance,
            )  # fmt: skip

    def tallies(self):
        """The :class:`RowTallies`, once all rows were added."""
        below, entries, mass = self._distance
        return RowTallies(
            below=self._below,
            support=self._support,
            sink_mass=self._sink_mass,
            distance_below=below.astype(np.int64),
            distance_entries=entries.astype(np.int64),
            distance_mass=mass,
        )


@njit(cache=True, nogil=True)
def _tally(rows, ordered, start, threshold, masses, bins, below, support, distance):
    for i in range(len(rows)):
        t = start + i
        width = ordered.shape[1]
        bar = threshold * ordered[i, width - 1]
        for j in range(t + 1):
            b = bins[t - j]
            sparse = rows[i, j] < bar
            below[t] += sparse
            distance[0, b] += sparse
            distance[1, b] += 1
            distance[2, b] += rows[i, j]
        held, taken = 0.0, 0
        for level in range(len(masses)):
            # The rounding of the sums must not ask for one more key.
            wanted = masses[level] * (1 - 1e-12)
            while held < wanted and taken < t + 1:
                taken += 1
                held += ordered[i, width - taken]
            support[t, level] = taken
