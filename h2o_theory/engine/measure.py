"""Measures of a schedule, taken block by block from the recorded attention alone.

They use the schedule (``evicted_at``) and the rows and nothing of the policy that made it, so a
mistake in a policy's bookkeeping cannot flatter its figures.
"""

import numpy as np

from h2o_theory.attention.measures import lost_mass_divergences, sum_relative_errors
from h2o_theory.kernels import kernel
from h2o_theory.optimum import UNITS
from h2o_theory.policies.access import is_access

__all__ = ["HeadTotals", "Measure"]

_FAST = {"reassoc", "nsz", "contract"}


@kernel(nogil=True, error_model="numpy")
def _count_accesses(mean, start, skip):
    """Accessed keys of the full rows ``skip ..`` of a block: own ones, and those with a fair share
    of the row."""
    count = 0
    for b in range(skip, mean.shape[0]):
        t = start + b
        for j in range(t + 1):
            count += is_access(mean[b, j], t + 1, j == t)
    return count


@kernel(nogil=True, error_model="numpy", fastmath=_FAST)
def _measure_block(rows, mean, start, skip, members, leaves, mass, retained, weights):
    """Measure rows ``skip ..`` of a block over ``members``, the keys that any of them sees.

    Member i is visible to row t iff it has arrived and ``t <= leaves[i]``. Fills the retained mass
    ``mass`` [G, B], its group mean in fixed point ``retained`` [B] (whole numbers below 2^53, so
    their float sums are exact in any order) and, if it is not empty, ``weights`` [G, B, U], the
    visible part of the rows. Returns the visible accessed keys. O(G U) per row.
    """
    hits = 0
    for b in range(skip, rows.shape[1]):
        t = start + b
        arrived = members.size - (rows.shape[1] - 1 - b)
        total = 0.0
        for i in range(arrived):
            value = mean[b, np.uint64(members[i])] if leaves[i] >= t else -1.0
            total += np.rint(max(value, 0.0) * UNITS)
            hits += is_access(value, t + 1, i == arrived - 1)
        retained[b] = total
        for g in range(rows.shape[0]):
            total = 0.0
            for i in range(arrived):
                value = rows[g, b, np.uint64(members[i])] if leaves[i] >= t else 0.0
                total += value
                if weights.size > 0:
                    weights[g, b, i] = value
            mass[g, b] = total
    return hits


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
        self._held = np.zeros(0, dtype=np.int64)
        self._retained, self._total_fixed = [], 0
        self._error_sum, self._error_count = 0.0, 0
        self._divergence_sum, self._divergence_count = 0.0, 0
        self._hits = 0

    def add(self, block, values, outputs):
        """Measure a :class:`h2o_theory.engine.rows.Block`.

        ``values`` [T, dv] and the full ``outputs`` [G, B, dv] have dv = 0 when the trace holds no
        values. A sink without a key stays in the denominator of a restricted row.
        """
        self._add(*block, values, outputs)

    def _add(self, start, rows, mean, sink_share, values, outputs):
        group, block = rows.shape[:2]
        members = np.concatenate([self._held, np.arange(start, start + block)])
        leaves = self._schedule[members]
        skip = min(max(self._prefill - start, 0), block)
        if skip < block:
            mass, retained = np.ones((group, block)), np.zeros(block)
            has_values = values.shape[1] > 0
            weights = np.zeros((group, block, members.size) if has_values else (0, 0, 0))
            self._hits += _measure_block(
                rows, mean, start, skip, members, leaves, mass, retained, weights
            )
            self._total_fixed += int(retained.sum())
            self._retained.append(mass[:, skip:].mean(axis=0))
            if has_values:
                kept = (weights.reshape(group * block, -1) @ values[members]).reshape(outputs.shape)
                error, count = sum_relative_errors(kept, outputs, mass + sink_share, skip)
                self._error_sum += error
                self._error_count += count
            lost = lost_mass_divergences((mass + sink_share)[:, skip:])
            self._divergence_sum += float(lost.sum())
            self._divergence_count += group * (block - skip)
        self._held = members[leaves >= start + block]

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
        """Mean KL(renormalised A || A) = -log(retained mass), nats, over rows and query heads.

        With a sink that belongs to no key, its share counts as retained.
        """
        return max(self._divergence_sum, 0.0) / self._divergence_count

    def hits(self):
        """Accessed keys of the full rows that were visible, summed over scored rows."""
        return self._hits


class HeadTotals:
    """What the scored rows of a head hold whatever the policy: accesses and the largest entries.

    O(T log T) per row.
    """

    def __init__(self, tokens, prefill):
        self._prefill = prefill
        self._ranked, self.accesses = np.zeros(tokens, dtype=np.int64), 0

    def add(self, block):
        """Count a :class:`h2o_theory.engine.rows.Block`."""
        start, mean = block.start, block.mean
        skip = min(max(self._prefill - start, 0), len(mean))
        if skip == len(mean):
            return
        seen = mean[skip:, : start + len(mean)]
        self.accesses += _count_accesses(mean, start, skip)
        ranked = np.sort(seen, axis=-1)
        whole = np.rint(ranked * UNITS).sum(axis=0).astype(np.int64)
        self._ranked[: whole.size] += whole[::-1]

    def full(self):
        """Mass of the whole scored rows in fixed point: what a cache that drops nothing retains.

        Below one a row in a layer with a sink that belongs to no key.
        """
        return int(self._ranked.sum())

    def topk(self, budget):
        """Per-row top-k bound in fixed point: sum over scored rows of the ``budget`` largest keys.

        Forgets history (keys may come back), so it is at least the optimum.
        """
        return int(self._ranked[:budget].sum())
