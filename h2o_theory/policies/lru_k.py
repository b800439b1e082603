"""LRU-K: evict the entry whose K-th last access is longest ago."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from h2o_theory.kernels import kernel
from h2o_theory.policies.access import access_settings, least_access, settle_access
from h2o_theory.policies.base import CompiledPolicy
from h2o_theory.policies.checks import require_whole_number
from h2o_theory.policies.registry import register

__all__ = ["LruK"]


@kernel(nogil=True)
def observe_references(t, n, position, row, score, per_slot, memory, settings):
    """Keep the steps, plus one, of the last access and of the last K references, newest first."""
    depth, period, tokens = int(settings[0]), settings[1], settings[2]
    least = least_access(settings[3], settings[4], row, n)
    for i in range(n):
        if position[i] == t or row[i] >= least:
            last = per_slot[i, 0]
            if last == 0.0 or t + 1 - last > period:
                for q in range(depth, 1, -1):
                    per_slot[i, q] = per_slot[i, q - 1]
                per_slot[i, 1] = t + 1
            per_slot[i, 0] = t + 1
        reference = per_slot[i, depth]
        # Entries with fewer than K references lie below all others, by their last access.
        score[i] = per_slot[i, 0] if reference == 0.0 else tokens + 1 + reference


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
    level : float, optional
        See :mod:`h2o_theory.policies.access`.
    """

    name: ClassVar[str] = "lru_k"
    source: ClassVar[str] = "O'Neil et al. 1993"
    observe: ClassVar = observe_references

    depth: int = 2
    period: int = 0
    access: str = "uniform"
    level: float | None = None

    def __post_init__(self):
        require_whole_number(self, "depth", 1)
        require_whole_number(self, "period", 0)
        settle_access(self)

    def settings(self, context):
        """K, the period, T and the access rule."""
        own = [self.depth, self.period, context.tokens]
        return np.array(own + access_settings(self), dtype=np.float64)

    def sizes(self, context):
        """The last access and K references per entry."""
        return self.depth + 1, 0
