"""BUZZ: thin the middle of the cache out, keeping the local maxima of what is new."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from h2o_theory.policies.base import CompiledPolicy
from h2o_theory.policies.checks import require_share, require_whole_number
from h2o_theory.policies.parts import Parts, heavy_part, sinks_within
from h2o_theory.policies.registry import register

__all__ = ["Buzz"]

GIVEN_UP = -1.0
"""Mark of an entry that a selection gave up; 0 is new, 1 selected."""


@njit(cache=True, nogil=True)
def observe_new(t, n, position, row, score, per_slot, memory, settings):
    """Accumulate; entries that were given up are the first to go."""
    for i in range(n):
        per_slot[i, 0] += row[i]
        score[i] = 0.0 if per_slot[i, 1] == GIVEN_UP else 1.0


@njit(cache=True, nogil=True)
def rate_hive(t, b, n, position, score, per_slot, memory, table, settings):
    """Select anew once nothing is left of what the last selection gave up."""
    first, last, stride = int(settings[0]), t - int(settings[1]) + 1, int(settings[2])
    for i in range(n):
        if per_slot[i, 1] == GIVEN_UP:
            return
    for i in range(n):
        memory[position[i]] = i + 1
    seen_old, seen_new, best = 0, 0, -1
    for j in range(t + 1):
        i = int(memory[j]) - 1
        memory[j] = 0.0
        if i < 0 or not first <= j <= last:
            continue
        if per_slot[i, 1] == 1.0:
            per_slot[i, 1] = 1.0 if seen_old % ((stride + 1) // 2) == 0 else GIVEN_UP
            seen_old += 1
            continue
        per_slot[i, 1] = GIVEN_UP
        if seen_new % stride == 0:
            best = i
        elif per_slot[i, 0] > per_slot[best, 0]:
            per_slot[best, 1] = GIVEN_UP
            score[best] = 0.0
            best = i
        per_slot[best, 1] = 1.0
        seen_new += 1
    for i in range(n):
        score[i] = 0.0 if per_slot[i, 1] == GIVEN_UP else 1.0


@register
@dataclass(frozen=True)
class Buzz(CompiledPolicy):
    r"""Keep sinks, a window and a sample of the middle that gets thinner with age.

    When the cache is full, the middle is gone through in order: of the entries that earlier
    selections kept every :math:`\lceil c/2 \rceil`-th stays, counted from the first; of the new
    ones, in runs of c, the one with most attention accumulated since it arrived,

    .. math:: \arg\max_{j \in \text{run}} \sum_{j \le t' \le t} \hat A[t', j].

    The others leave, the oldest first, whenever a place is needed; when they are gone, the next
    selection follows. No guarantee. O(k) per step.

    Source: arXiv 2410.23079 and its code (4 sinks, window 160 of some 560 entries, c = 5).
    Departures: there the others leave at once and the size swings between full and a fraction;
    here it stays at the budget, so that the sets contain theirs between selections. Per kv_head
    on the mean of its group.

    Parameters
    ----------
    n_sink : int
        The default shrinks to fit.
    recent : float
        Share of what the sinks leave for the window.
    stride : int
        c, at least 2.
    """

    name: ClassVar[str] = "buzz"
    source: ClassVar[str] = "arXiv 2410.23079"
    observe: ClassVar = observe_new
    rate: ClassVar = rate_hive

    n_sink: int = 4
    recent: float = 0.3
    stride: int = 5

    def __post_init__(self):
        require_whole_number(self, "n_sink", 0)
        require_whole_number(self, "stride", 2)
        require_share(self, "recent")

    def parts(self, budget):
        """Sinks first; of what remains, the share ``1 - recent`` is the middle, rounded down."""
        n_sink = sinks_within(self, self.n_sink, budget, default=4)
        n_heavy = heavy_part(self.recent, budget - n_sink)
        return Parts(n_sink, n_heavy, budget - n_sink - n_heavy)

    def settings(self, context):
        """Sinks, window and stride."""
        parts = self.parts(context.budget)
        return np.array([parts.n_sink, parts.n_recent, self.stride], dtype=np.float64)

    def sizes(self, context):
        """Accumulated attention and mark of each entry; slots by position."""
        return 2, context.tokens
