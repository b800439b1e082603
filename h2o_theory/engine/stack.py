"""All budgets in one pass, for policies whose priorities do not depend on what the cache holds.

If at every step each token has a priority that comes from the full rows alone, and one token
competes per step, the retained candidates at a budget are the first entries of one common stack
(Mattson et al. 1970): a competitor walks down the stack, at each level the higher priority stays
and the lower is carried on, and what is carried past level m is what a cache with m places for
candidates evicts. One walk of O(m) serves every budget.
"""

import numpy as np
from numba import float64, int32, int64, void

from h2o_theory.engine.advance import compiled_loop, move, visible_row, welcome
from h2o_theory.engine.run import features_of, future_table, no_sinks, row_kind
from h2o_theory.kernels import kernel
from h2o_theory.policies.choose import STRETCH, least
from h2o_theory.policies.parts import resolve_parts

__all__ = ["StackRun", "compiled_stack_pass"]


@kernel(nogil=True, error_model="numpy")
def settle(slot, t, served, bottom, height, position, score, per_slot, out):
    """Walk the entry at ``slot`` down the stack at step t; returns the new height.

    The stack's entries stand at ``bottom`` and on, level by level. What is carried past level m is
    what a cache with m places evicts, so that between two swaps all levels evict the same token:
    one stretch of ``out[carried]``. ``served[m]`` budgets have at most m places. O(height).
    """
    # Unsigned indices spare the check for negative ones.
    one, slot, stretch = np.uint64(1), np.uint64(slot), np.uint64(STRETCH)
    last = np.uint64(bottom + min(height, served.size - 1))
    level, budget = np.uint64(bottom), 0
    own, age = score[slot], position[slot]
    while True:
        while level < last:
            # Most swaps are far down; whole stretches above them are passed by with vector units.
            if level % stretch == 0 and level + stretch <= last:
                if least(score, np.int64(level), np.int64(level + stretch)) > own:
                    level += stretch
                    continue
            end = min((level // stretch + one) * stretch, last)
            while level < end and score[level] > own:
                level += one
            if level == end:
                continue
            other, older = score[level], position[level] < age
            if other < own or (other == own and older):
                break
            # NaN is never lower than a number, as where a single budget is served.
            if own != own and (other == other or older):
                break
            level += one
        evicted = out[np.uint64(age)]
        stop = served[np.int64(level) - bottom]
        evicted[budget:stop] = t
        budget = stop
        if level == last:
            break
        score[level], own = own, score[level]
        position[level], age = age, position[level]
        for i in range(per_slot.shape[1]):
            per_slot[level, i], per_slot[slot, i] = per_slot[slot, i], per_slot[level, i]
        level += one
    score[slot], position[slot] = own, age
    if budget < served[-1]:
        move(slot, bottom + height, position, score, per_slot)
        height += 1
    return height


def stack_pass(
    rows,
    sink_share,
    start,
    limits,
    features,
    served,
    position,
    score,
    per_slot,
    memory,
    table,
    settings,
    row,
    spare,
    out,
):
    """Replay rows ``start .. start + B`` at all levels; the state carries over between blocks.

    The slots are those of :func:`h2o_theory.engine.advance.advance`, with the stack in place of
    the unordered candidates. ``limits`` is (height, window, prefill, n_sink, needs_rows, raw,
    reduction, entries), the first the number of tokens on the stack and the last of all that are
    held, both updated. ``served[m]`` is the number of budgets with at most m places for candidates.
    ``out[j, i]`` is the step at which the i-th smallest budget evicted token j.
    """
    height, window, prefill, n = limits[0], limits[1], limits[2], limits[7]
    bottom = window + limits[3]
    for b in range(rows.shape[1]):
        t = start + b
        welcome(t, n, window, features, position, score, per_slot)
        n += 1
        if limits[4]:
            visible_row(rows, sink_share, b, position, n, limits[5], limits[6], row, spare)
        observe(t, n, position, row, score, per_slot, memory, settings)  # noqa: F821
        if t < prefill - 1:
            continue
        rate(t, b, n, position, score, per_slot, memory, table, settings)  # noqa: F821
        # At the cut that ends a prefill all prompt tokens outside the window compete, in turn.
        for competitor in range(bottom + height, n):
            height = settle(competitor, t, served, bottom, height, position, score, per_slot, out)
        n = min(n, bottom + height)
    limits[0], limits[7] = height, n


_SIGNATURE = void(
    float64[:, :, ::1],
    float64[:, ::1],
    int64,
    int64[::1],
    float64[:, ::1],
    int64[::1],
    int64[::1],
    float64[::1],
    float64[:, ::1],
    float64[::1],
    float64[:, ::1],
    float64[::1],
    float64[::1],
    float64[::1],
    int32[:, ::1],
)


def compiled_stack_pass(policy):
    """:func:`stack_pass` compiled for the functions of a policy."""
    return compiled_loop(stack_pass, _SIGNATURE, *policy.kernels)


class StackRun:
    """One policy at several budgets that share the protected parts, replayed in one pass.

    ``schedules[i]`` is the schedule at ``contexts[i].budget``. O(T k) for all budgets to k
    together.
    """

    def __init__(self, policy, contexts, mean_rows):
        tokens, context = contexts[0].tokens, contexts[0]
        parts = resolve_parts(policy, context.budget)
        window = max(parts.n_recent - 1, 0)
        self._loop = compiled_stack_pass(policy)
        self._limits = np.array(
            [0, window, context.prefill, parts.n_sink, *row_kind(policy), 0], dtype=np.int64
        )
        places = np.array([c.budget - 1 - window - parts.n_sink for c in contexts])
        order, most = np.argsort(places), int(places.max())
        self._served = np.searchsorted(places[order], np.arange(most + 1), side="right")
        per_slot, memory = policy.sizes(context)
        held = most + window + parts.n_sink
        slots = min(max(held, context.prefill), tokens) + 1
        self._position = np.zeros(slots, dtype=np.int64)
        self._score = np.zeros(slots)
        self._features = features_of(policy, context)
        self._per_slot = np.zeros((slots, self._features.shape[1] + per_slot))
        self._memory = np.zeros(memory)
        self._row, self._spare = np.zeros(slots), np.zeros(slots)
        self._settings, self._table = policy.settings(context), future_table(policy, mean_rows)
        self._out = np.full((tokens, len(contexts)), tokens, dtype=np.int32)
        self.schedules = [self._out[:, place] for place in np.argsort(order)]

    def advance(self, rows, start, sink_share=None):
        """Replay a block ``rows`` [G, B, T] that begins at row ``start``."""
        self._loop(
            rows,
            no_sinks(rows) if sink_share is None else sink_share,
            start,
            self._limits,
            self._features,
            self._served,
            self._position,
            self._score,
            self._per_slot,
            self._memory,
            self._table[start : start + rows.shape[1]],
            self._settings,
            self._row,
            self._spare,
            self._out,
        )
