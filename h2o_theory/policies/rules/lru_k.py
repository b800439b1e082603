"""LRU-K: evict the entry whose K-th last access is longest ago."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from h2o_theory.kernels import kernel
from h2o_theory.policies.access import Access, access_of, least_access, resolve_access
from h2o_theory.policies.base import CompiledPolicy, Context
from h2o_theory.policies.checks import require_whole_number
from h2o_theory.policies.registry import register

__all__ = ["LruK"]

LAST = 0
"""Place of the last access among what is kept with an entry; the references follow it."""
NEWEST = 1


class Settings(NamedTuple):
    depth: int
    period: int
    tokens: int
    access: Access


@kernel(nogil=True)
def observe_references(t, n, cache, row, settings):
    """Keep the steps, plus one, of the last access and of the last K references, newest first."""
    depth = settings.depth
    least = least_access(settings.access, row, n)
    for i in range(n):
        if cache.position[i] == t or row[i] >= least:
            last = cache.entry[i, LAST]
            if last == 0.0 or t + 1 - last > settings.period:
                for q in range(depth, NEWEST, -1):
                    cache.entry[i, q] = cache.entry[i, q - 1]
                cache.entry[i, NEWEST] = t + 1
            cache.entry[i, LAST] = t + 1
        reference = cache.entry[i, depth]
        # Entries with fewer than K references lie below all others, by their last access.
        cache.score[i] = (
            cache.entry[i, LAST] if reference == 0.0 else settings.tokens + 1 + reference
        )


@register
@dataclass(frozen=True)
class LruK(CompiledPolicy):
    r"""Evict the largest backward K-distance; entries with fewer references first, by LRU.

    .. math:: u_t = \arg\min_{j \in S_t} b_K(j), \qquad
              b_K(j) = \text{step of the K-th last reference}

    and minus infinity, ordered by last access, where there are fewer than K. An
    access within ``period`` steps of the last one is part of the same reference.
    K = 1 without a period is LRU. No guarantee here. O(k K) per step.

    Source: O'Neil, O'Neil and Weikum, SIGMOD 1993. Departure: no history is kept after eviction,
    since nothing comes back.

    Parameters
    ----------
    depth : int
        K, at least 1.
    period : int
        Correlated reference period in steps; 0 counts every access.
    access : {"uniform", "relative", "top_m", "absolute"}
    threshold : float, optional
        See :mod:`h2o_theory.policies.access`.
    """

    name: ClassVar[str] = "lru_k"
    source: ClassVar[str] = "O'Neil et al. 1993"
    observe: ClassVar = observe_references

    depth: int = 2
    period: int = 0
    access: str = "uniform"
    threshold: float | None = None

    def __post_init__(self):
        super().__post_init__()
        require_whole_number(self, "depth", 1)
        require_whole_number(self, "period", 0)
        resolve_access(self)

    def settings(self, context: Context) -> Settings:
        """K, the period, T and the access rule."""
        return Settings(self.depth, self.period, context.tokens, access_of(self))

    def sizes(self, context):
        """The last access and K references per entry."""
        return self.depth + 1, 0
