"""All budgets in one pass, for policies whose priorities do not depend on what the cache holds.

If at every step each token has a priority that comes from the full rows alone, and one token
competes per step, the retained candidates at a budget are the first entries of one common stack
(Mattson et al. 1970): a competitor walks down the stack, at each level the higher priority stays
and the lower is carried on, and what is carried past level m is what a cache with m places for
candidates evicts. One walk of O(m) serves every budget.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numba import int32, int64, njit

from h2o_theory.engine.advance import RowKind, compiled_loop, form_row, move, welcome
from h2o_theory.engine.run import BlockRun, row_kind
from h2o_theory.policies import CompiledPolicy, Context
from h2o_theory.policies.choose import STRETCH, least
from h2o_theory.policies.parts import resolve_parts

__all__ = ["StackRun", "compiled_stack_pass"]


class StackLimits(NamedTuple):
    """What bounds a run at several budgets.

    Attributes
    ----------
    prefill, n_sink, window, row
        As in :class:`h2o_theory.engine.advance.Limits`.
    served : int64 [levels]
        ``served[m]`` budgets have at most m places for candidates.
    """

    prefill: int
    n_sink: int
    window: int
    row: RowKind
    served: int64[::1]


@njit(nogil=True, error_model="numpy")
def walk_down(slot, t, served, bottom, height, cache, out):
    """Walk the entry at ``slot`` down the stack at step t; returns the new height.

    The stack's entries stand at ``bottom`` and on, level by level. What is carried past level m is
    what a cache with m places evicts, so that between two swaps all levels evict the same token:
    one stretch of ``out[carried]``. ``served[m]`` budgets have at most m places. O(height).
    """
    position, score, entry = cache.position, cache.score, cache.entry
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
        for i in range(entry.shape[1]):
            entry[level, i], entry[slot, i] = entry[slot, i], entry[level, i]
        level += one
    score[slot], position[slot] = own, age
    if budget < served[-1]:
        move(slot, bottom + height, cache)
        height += 1
    return height


def stack_pass(rows, sink_share, future, start, n, limits, state, settings, out):
    """Replay rows ``start .. start + B`` at all levels on the n entries held; returns how many are.

    The slots are those of :func:`h2o_theory.engine.advance.advance`, with the stack in place of
    the unordered candidates. ``out[j, i]`` is the step at which the i-th smallest budget evicted
    token j.
    """
    cache, features, row, spare = state
    position, served = cache.position, limits.served
    window, bottom = limits.window, limits.window + limits.n_sink
    # Nothing is on the stack before the cut that ends a prefill: till then all tokens stay.
    height = max(n - bottom, 0) if start >= limits.prefill else 0
    for b in range(rows.shape[1]):
        t = start + b
        welcome(t, n, window, features, cache)
        n += 1
        if limits.row.is_needed:
            form_row(rows, sink_share, b, position, n, limits.row, row, spare)
        observe(t, n, cache, row, settings)  # noqa: F821
        if t < limits.prefill - 1:
            continue
        rate(t, n, cache, future[b], settings)  # noqa: F821
        # At the cut that ends a prefill all prompt tokens outside the window compete, in turn.
        for competitor in range(bottom + height, n):
            height = walk_down(competitor, t, served, bottom, height, cache, out)
        n = min(n, bottom + height)
    return n


def compiled_stack_pass(policy: CompiledPolicy) -> Callable:
    """:func:`stack_pass` compiled for the functions of a policy."""
    return compiled_loop(stack_pass, StackLimits, int32[:, ::1], policy)


class StackRun(BlockRun):
    """One policy at several budgets that share the protected parts, replayed in one pass.

    ``schedules[i]`` is the schedule at ``contexts[i].budget``. O(T k) for all budgets to k
    together.
    """

    def __init__(
        self,
        policy: CompiledPolicy,
        contexts: Sequence[Context],
        mean_rows: np.ndarray | None,
    ) -> None:
        context = contexts[0]
        tokens, prefill = context.tokens, context.prefill
        parts = resolve_parts(policy, context.budget)
        window = max(parts.n_recent - 1, 0)
        places = np.array([c.budget - 1 - window - parts.n_sink for c in contexts])
        order, most = np.argsort(places), int(places.max())
        served = np.searchsorted(places[order], np.arange(most + 1), side="right")
        limits = StackLimits(prefill, parts.n_sink, window, row_kind(policy), served)
        # 32 bits suffice for a step and halve what the walk writes.
        out = np.full((tokens, len(contexts)), tokens, dtype=np.int32)
        self.schedules = [out[:, place] for place in np.argsort(order)]
        slots = min(max(most + window + parts.n_sink, prefill), tokens) + 1
        loop = compiled_stack_pass(policy)
        super().__init__(loop, limits, slots, policy, context, mean_rows, out)
