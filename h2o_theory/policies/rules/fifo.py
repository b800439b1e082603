"""FIFO: first in, first out."""

from dataclasses import dataclass
from typing import ClassVar

from numba import njit

from h2o_theory.policies.base import CompiledPolicy
from h2o_theory.policies.registry import register

__all__ = ["Fifo"]


@njit(cache=True, nogil=True)
def rate_arrival(t, n, cache, future, settings):
    """The score is the step of arrival."""
    for i in range(n):
        cache.score[i] = cache.position[i]


@register
@dataclass(frozen=True)
class Fifo(CompiledPolicy):
    r"""Evict the oldest entry.

    .. math:: u_t = \min S_t

    Every token arrives once, so this is the sliding window, arrived at from the other side: the
    two must agree on every trace, and LRU must not, wherever a key is used again. No guarantee.
    O(1) per step in principle; the loop here rates all k entries.

    Source: classical paging. Departures: none.
    """

    name: ClassVar[str] = "fifo"
    needs: ClassVar[str] = "positions"
    source: ClassVar[str] = "classical paging"
    rate: ClassVar = rate_arrival

    @property
    def nested(self):
        """Arrival does not depend on what the cache holds."""
        return True
