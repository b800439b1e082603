"""BUZZ: thin the middle of the cache out, keeping the local maxima of what is new."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from numba import njit

from h2o_theory.policies.base import CompiledPolicy, Context
from h2o_theory.policies.checks import require_whole_number
from h2o_theory.policies.parts import Parts, heavy_part, sinks_within
from h2o_theory.policies.registry import register

__all__ = ["Buzz"]

SUM, MARK = 0, 1
"""Places of the accumulated attention and the mark among what is kept with an entry."""
GIVEN_UP, SELECTED = -1.0, 1.0
"""Marks of an entry that a selection gave up or took; 0 is new."""


class Settings(NamedTuple):
    n_sink: int
    n_recent: int
    stride: int


@njit(cache=True, nogil=True)
def observe_new(t, n, cache, row, settings):
    """Accumulate; entries that were given up are the first to go."""
    for i in range(n):
        cache.entry[i, SUM] += row[i]
        cache.score[i] = 0.0 if cache.entry[i, MARK] == GIVEN_UP else 1.0


@njit(cache=True, nogil=True)
def rate_hive(t, n, cache, future, settings):
    """Select anew once nothing is left of what the last selection gave up."""
    first, last, stride = settings.n_sink, t - settings.n_recent + 1, settings.stride
    slot = cache.memory
    for i in range(n):
        if cache.entry[i, MARK] == GIVEN_UP:
            return
    for i in range(n):
        slot[cache.position[i]] = i + 1
    seen_old, seen_new, best = 0, 0, -1
    for j in range(t + 1):
        i = int(slot[j]) - 1
        slot[j] = 0.0
        if i < 0 or not first <= j <= last:
            continue
        if cache.entry[i, MARK] == SELECTED:
            cache.entry[i, MARK] = SELECTED if seen_old % ((stride + 1) // 2) == 0 else GIVEN_UP
            seen_old += 1
            continue
        cache.entry[i, MARK] = GIVEN_UP
        if seen_new % stride == 0:
            best = i
        elif cache.entry[i, SUM] > cache.entry[best, SUM]:
            cache.entry[best, MARK] = GIVEN_UP
            cache.score[best] = 0.0
            best = i
        cache.entry[best, MARK] = SELECTED
        seen_new += 1
    for i in range(n):
        cache.score[i] = 0.0 if cache.entry[i, MARK] == GIVEN_UP else 1.0


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
        super().__post_init__()
        require_whole_number(self, "stride", 2)

    def parts(self, budget):
        """Sinks first; of what remains, the share ``1 - recent`` is the middle, rounded down."""
        n_sink = sinks_within(self, self.n_sink, budget, default=4)
        n_heavy = heavy_part(self.recent, budget - n_sink)
        return Parts(n_sink, n_heavy, budget - n_sink - n_heavy)

    def settings(self, context: Context) -> Settings:
        """Sinks, window and stride."""
        parts = self.parts(context.budget)
        return Settings(parts.n_sink, parts.n_recent, self.stride)

    def sizes(self, context):
        """Accumulated attention and mark of each entry; slots by position."""
        return 2, context.tokens
