"""All budgets in one pass, for policies whose priorities do not depend on what the cache holds.

If at every step each token has a priority that comes from the full rows alone, and one token
competes per step, the retained candidates at a budget are the first entries of one common stack
(Mattson et al. 1970): a competitor walks down the stack, at each level the higher priority stays
and the lower is carried on, and what is carried past level m is what a cache with m places for
candidates evicts. One walk of O(m) serves every budget.
"""

import numpy as np
from numba import float64, int64, njit, void

from h2o_theory.engine.advance import FIRST, MAX, MEAN, compiled_loop, welcome
from h2o_theory.engine.run import features_of, future_table, no_sinks, row_kind
from h2o_theory.policies.base import checked_parts

__all__ = ["StackRun", "compiled_stack_pass"]


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "nsz"})
def whole_row(rows, sink_share, b, n, raw, reduction, row):
    """Row b over all n keys that have arrived: :func:`visible_row` without the gathering."""
    group = rows.shape[0] if reduction != FIRST else 1
    for g in range(group):
        own, scale = rows[g, b, :n], 1.0
        if not raw:
            mass = sink_share[g, b] + own.sum()
            scale = 1.0 / mass if mass > 0.0 else 0.0
        if reduction == MEAN:
            scale /= group
        if g == 0:
            for i in range(n):
                row[i] = own[i] * scale
        elif reduction == MAX:
            for i in range(n):
                row[i] = max(row[i], own[i] * scale)
        else:
            for i in range(n):
                row[i] += own[i] * scale


@njit(cache=True, nogil=True, error_model="numpy")
def settle(carried, t, levels, stack, height, score, out):
    """Walk a competitor down the stack at step t; returns the new height.

    What is carried past level m is what a cache with m places evicts, so that between two swaps
    all levels evict the same token: one stretch of ``out[carried]``.
    """
    last = min(height, levels[-1])
    level, bound = 0, 0
    while True:
        own = score[carried]
        while level < last:
            held = stack[np.uint64(level)]
            other = score[np.uint64(held)]
            if other < own or (other == own and held < carried):
                break
            level += 1
        while bound < levels.size and levels[bound] <= level:
            out[carried, bound] = t
            bound += 1
        if level == last:
            break
        stack[level], carried = carried, stack[level]
        level += 1
    if bound < levels.size:
        stack[height] = carried
        height += 1
    return height


def stack_pass(
    rows,
    sink_share,
    start,
    limits,
    features,
    levels,
    stack,
    position,
    score,
    per_slot,
    memory,
    table,
    settings,
    row,
    out,
):
    """Replay rows ``start .. start + B`` at all levels; the state carries over between blocks.

    ``limits`` is (height, window, prefill, n_sink, needs_rows, raw, reduction), its first entry
    the number of tokens on the stack, updated. ``levels`` are the places for
    candidates of each budget, ascending. ``out[j, i]`` is the step at which level i evicted
    token j.
    """
    height, window, prefill, n_sink = limits[0], limits[1], limits[2], limits[3]
    for b in range(rows.shape[1]):
        t = start + b
        n = t + 1
        welcome(t, t, features, position, score, per_slot)
        if limits[4]:
            whole_row(rows, sink_share, b, n, limits[5], limits[6], row)
        observe(t, n, position, row, score, per_slot, memory, settings)  # noqa: F821
        if t < prefill - 1:
            continue
        rate(t, b, n, position, score, per_slot, memory, table, settings)  # noqa: F821
        # At the cut that ends a prefill all prompt tokens outside the window compete, in turn.
        first = n_sink if t == prefill - 1 else max(t - window, n_sink)
        for competitor in range(first, t - window + 1):
            height = settle(competitor, t, levels, stack, height, score, out)
    limits[0] = height


_SIGNATURE = void(
    float64[:, :, ::1],
    float64[:, ::1],
    int64,
    int64[::1],
    float64[:, ::1],
    int64[::1],
    int64[::1],
    int64[::1],
    float64[::1],
    float64[:, ::1],
    float64[::1],
    float64[:, ::1],
    float64[::1],
    float64[::1],
    int64[:, ::1],
)


def compiled_stack_pass(policy):
    """:func:`stack_pass` compiled for the functions of a policy."""
    return compiled_loop(stack_pass, _SIGNATURE, *policy.kernels)


class StackRun:
    """One policy at several budgets that share the protected parts, replayed in one pass.

    ``schedules[i]`` is the schedule at ``contexts[i].budget``. O(T^2) for all budgets together.
    """

    def __init__(self, policy, contexts, mean_rows):
        tokens, context = contexts[0].tokens, contexts[0]
        parts = checked_parts(policy, context.budget)
        window = max(parts.n_recent - 1, 0)
        self._loop = compiled_stack_pass(policy)
        self._limits = np.array(
            [0, window, context.prefill, parts.n_sink, *row_kind(policy)], dtype=np.int64
        )
        levels = np.array([c.budget - 1 - window - parts.n_sink for c in contexts])
        order = np.argsort(levels)
        self._levels = np.ascontiguousarray(levels[order])
        per_slot, memory = policy.sizes(context)
        self._stack = np.zeros(tokens + 1, dtype=np.int64)
        self._position = np.zeros(tokens, dtype=np.int64)
        self._score = np.zeros(tokens)
        self._features = features_of(policy, context)
        self._per_slot = np.zeros((tokens, self._features.shape[1] + per_slot))
        self._memory = np.zeros(memory)
        self._row = np.zeros(tokens)
        self._settings, self._table = policy.settings(context), future_table(policy, mean_rows)
        self._out = np.full((tokens, len(contexts)), tokens, dtype=np.int64)
        self.schedules = [self._out[:, place] for place in np.argsort(order)]

    def advance(self, rows, start, sink_share=None):
        """Replay a block ``rows`` [G, B, T] that begins at row ``start``."""
        self._loop(
            rows,
            no_sinks(rows) if sink_share is None else sink_share,
            start,
            self._limits,
            self._features,
            self._levels,
            self._stack,
            self._position,
            self._score,
            self._per_slot,
            self._memory,
            self._table[start : start + rows.shape[1]],
            self._settings,
            self._row,
            self._out,
        )
