"""Measures of a schedule, taken row by row from the recorded attention alone.

They use the schedule (``evicted_at``) and the rows and nothing of the policy that made it, so a
mistake in a policy's bookkeeping cannot flatter its figures.
"""

import numpy as np
from numba import njit

from h2o_theory.policies.access import is_access

__all__ = ["Measure", "count_accesses", "topk_mass"]

_FAST = {"reassoc", "nsz", "contract"}


@njit(cache=True, nogil=True, error_model="numpy")
def count_accesses(mean_rows):
    """Accessed keys of each full row, int64 [T]: its own, and those with a fair share of it."""
    tokens = mean_rows.shape[0]
    counts = np.zeros(tokens, dtype=np.int64)
    for t in range(tokens):
        for j in range(t + 1):
            counts[t] += is_access(mean_rows[t, j], t + 1, j == t)
    return counts


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def _output_error(rows, b, values, outputs, visible, count, mass, kept):
    """Relative distance of each query head's restricted output to the full one, summed.

    Returns the sum and the number of heads whose full output is not zero. One pass over the
    visible values serves the whole group.
    """
    group, width = outputs.shape[0], values.shape[1]
    kept[:] = 0.0
    for i in range(count):
        j = np.uint64(visible[i])
        for g in range(group):
            weight = rows[g, b, j]
            for d in range(width):
                kept[g, d] += weight * values[j, d]
    total, heads = 0.0, 0
    for g in range(group):
        scale = 1.0 / mass[g] if mass[g] > 0.0 else 0.0
        distance, size = 0.0, 0.0
        for d in range(width):
            full = outputs[g, b, d]
            distance += (kept[g, d] * scale - full) ** 2
            size += full * full
        if size > 0.0:
            total += np.sqrt(distance / size)
            heads += 1
    return total, heads


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def _measure_block(
    rows, fixed, mean, values, outputs, start, skip, evicted_at, visible, count, mass, retained
):
    """Measure rows ``skip ..`` of a block; ``visible[:count]`` is carried from block to block.

    Fills ``mass`` [G, B - skip] and the fixed-point ``retained`` [B - skip]; returns the new
    count, the visible accessed keys, the sum of output errors and how many there were. O(k) per
    row, O(k d) with values.
    """
    group = rows.shape[0]
    kept, own_mass = np.zeros((group, values.shape[1])), np.zeros(group)
    hits, error_sum, error_count = 0, 0.0, 0
    for b in range(rows.shape[1]):
        t = start + b
        remaining = 0
        for i in range(count):
            visible[remaining] = visible[i]
            remaining += evicted_at[visible[i]] >= t
        visible[remaining] = t
        count = remaining + 1
        if b < skip:
            continue
        for g in range(group):
            total = 0.0
            for i in range(count):
                total += rows[g, b, np.uint64(visible[i])]
            own_mass[g] = total
            mass[g, b - skip] = total
        total_fixed = 0
        for i in range(count):
            j = np.uint64(visible[i])
            total_fixed += fixed[b, j]
            hits += is_access(mean[b, j], t + 1, visible[i] == t)
        retained[b - skip] = total_fixed
        if values.shape[1] > 0:
            error, heads = _output_error(rows, b, values, outputs, visible, count, own_mass, kept)
            error_sum += error
            error_count += heads
    return count, hits, error_sum, error_count


class Measure:
    """Accumulates the measures of one schedule over blocks; rows before ``prefill`` do not count.

    Parameters
    ----------
    schedule : int64 [T]
        ``evicted_at``; it may still be filled in for rows that have not been added.
    prefill : int
    """

    def __init__(self, schedule, prefill):
        self._schedule, self._prefill = schedule, prefill
        self._visible, self._count = np.zeros(len(schedule), dtype=np.int64), 0
        self._retained, self._total_fixed = [], 0
        self._error_sum, self._error_count = 0.0, 0
        self._divergence_sum, self._divergence_count = 0.0, 0
        self._hits = 0

    def add(self, rows, fixed, mean, start, values, outputs):
        """Measure a block ``rows`` [G, B, T] that begins at row ``start``.

        ``fixed`` and ``mean`` are its rows [B, T] of the group mean; ``values`` [T, dv] and the
        full ``outputs`` [G, B, dv] have dv = 0 when the trace holds no values.
        """
        group, block = rows.shape[:2]
        skip = min(max(self._prefill - start, 0), block)
        mass = np.empty((group, block - skip))
        retained = np.empty(block - skip, dtype=np.int64)
        self._count, hits, error_sum, error_count = _measure_block(
            rows,
            fixed,
            mean,
            values,
            outputs,
            start,
            skip,
            self._schedule,
            self._visible,
            self._count,
            mass,
            retained,
        )
        self._total_fixed += int(retained.sum())
        self._retained.append(mass.mean(axis=0))
        self._hits += hits
        self._error_sum += error_sum
        self._error_count += error_count
        with np.errstate(divide="ignore"):
            self._divergence_sum -= float(np.log(mass).sum())
        self._divergence_count += mass.size

    def total_fixed(self):
        """J in fixed point: an exact integer."""
        return self._total_fixed

    def rows(self):
        """Retained mass of each scored row, mean over the group, float64."""
        return np.concatenate(self._retained)

    def output_error(self):
        """Mean relative output error over rows and query heads; NaN without values."""
        return self._error_sum / self._error_count if self._error_count else float("nan")

    def divergence(self):
        """Mean KL(renormalised A || A) = -log(retained mass), nats, over rows and query heads."""
        return max(self._divergence_sum, 0.0) / self._divergence_count

    def hits(self):
        """Accessed keys of the full rows that were visible, summed over scored rows."""
        return self._hits


def topk_mass(fixed, budgets, prefill):
    """Per-row top-k bound in fixed point, ``{k: sum over scored rows of the k largest keys}``.

    Forgets history (keys may come back), so it is at least the optimum. O(T^2 log T).
    """
    descending = -np.sort(-fixed[prefill:], axis=-1)
    sums = np.cumsum(descending, axis=-1).sum(axis=0)
    return {budget: int(sums[budget - 1]) for budget in budgets}
