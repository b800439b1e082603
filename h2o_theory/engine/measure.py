"""Measures of a schedule, taken row by row from the recorded attention alone.

They use the schedule (``evicted_at``) and the rows and nothing of the policy that made it, so a
mistake in a policy's bookkeeping cannot flatter its figures.
"""

import numpy as np
from numba import njit

from h2o_theory.policies.access import is_access

__all__ = ["Measure", "measure_block", "topk_mass"]

@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def measure_block(rows, fixed, mean, start, skip, evicted_at, kept, mass, retained, hits):
    """Restrict a block, from its row ``skip`` on, to what the schedule leaves visible.

    Fills ``kept`` [G, B, T] with the visible part of ``rows``, ``mass`` [G, B] with its sums,
    ``retained`` [B] with the fixed-point mass of the mean row, and ``hits`` [B, 2] with the
    visible and the total number of accessed keys.
    """
    for b in range(skip, rows.shape[1]):
        t, scored = start + b, b - skip
        for g in range(rows.shape[0]):
            total = 0.0
            for j in range(t + 1):
                value = rows[g, b, j] if evicted_at[j] >= t else 0.0
                kept[g, scored, j] = value
                total += value
            mass[g, scored] = total
        total_fixed = 0
        for j in range(t + 1):
            total_fixed += fixed[b, j] if evicted_at[j] >= t else 0
        retained[scored] = total_fixed
        seen, all_accesses = 0, 0
        for j in range(t + 1):
            if is_access(mean[b, j], t + 1, j == t):
                all_accesses += 1
                if evicted_at[j] >= t:
                    seen += 1
        hits[scored, 0], hits[scored, 1] = seen, all_accesses


class Measure:
    """Accumulates the measures of one run over blocks; rows before ``prefill`` are not scored."""

    def __init__(self, prefill):
        self._prefill = prefill
        self.retained_fixed = []
        self.retained = []
        self._error_sum, self._error_count = 0.0, 0
        self._divergence_sum, self._divergence_count = 0.0, 0
        self._hits = np.zeros(2, dtype=np.int64)

    def add(self, rows, fixed, mean, start, evicted_at, values=None, outputs=None):
        """Measure a block that starts at row ``start``.

        ``values`` [T, dv] and the full ``outputs`` [G, B, dv] enable the output error.
        """
        skip = max(self._prefill - start, 0)
        if skip >= rows.shape[1]:
            return
        group, count, stop = rows.shape[0], rows.shape[1] - skip, start + rows.shape[1]
        kept = np.zeros((group, count, stop))
        mass = np.empty((group, count))
        retained, hits = np.empty(count, dtype=np.int64), np.empty((count, 2), dtype=np.int64)
        measure_block(rows, fixed, mean, start, skip, evicted_at, kept, mass, retained, hits)
        self.retained_fixed.extend(retained.tolist())
        self.retained.append(mass.mean(axis=0))
        self._hits += hits.sum(axis=0)
        with np.errstate(divide="ignore"):
            self._divergence_sum -= float(np.log(mass).sum())
        self._divergence_count += mass.size
        if values is not None:
            self._add_error(kept, mass, values[:stop], outputs[:, skip:])

    def _add_error(self, kept, mass, values, outputs):
        restricted = kept @ values
        np.divide(restricted, mass[..., None], out=restricted, where=mass[..., None] > 0)
        distance = np.linalg.norm(restricted - outputs, axis=-1)
        size = np.linalg.norm(outputs, axis=-1)
        self._error_sum += float((distance[size > 0] / size[size > 0]).sum())
        self._error_count += int((size > 0).sum())

    def total_fixed(self):
        """J in fixed point: an exact integer."""
        return sum(self.retained_fixed)

    def rows(self):
        """Retained mass of each scored row, mean over the group, float64."""
        return np.concatenate(self.retained) if self.retained else np.zeros(0)

    def output_error(self):
        """Mean relative output error over rows and query heads; NaN without values."""
        return self._error_sum / self._error_count if self._error_count else float("nan")

    def divergence(self):
        """Mean KL(A || renormalised A) = -log(retained mass), nats, over rows and query heads."""
        count = self._divergence_count
        return max(self._divergence_sum, 0.0) / count if count else float("nan")

    def hit_rate(self):
        """Accessed keys that were visible, as a share of all accessed keys of the full rows."""
        return self._hits[0] / self._hits[1] if self._hits[1] else float("nan")


def topk_mass(fixed, budgets, prefill):
    """Per-row top-k bound in fixed point, ``{k: sum over scored rows of the k largest keys}``.

    Forgets history (keys may come back), so it is at least the optimum. O(T^2 log T).
    """
    descending = -np.sort(-fixed[prefill:], axis=-1)
    sums = np.cumsum(descending, axis=-1).sum(axis=0)
    return {budget: int(sums[budget - 1]) for budget in budgets}
