"""SnapKV: what the last rows attended to, smoothed over neighbouring positions."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numba import njit

from h2o_theory.errors import BadArgument
from h2o_theory.policies.base import CompiledPolicy, Context
from h2o_theory.policies.checks import require_one_of, require_whole_number
from h2o_theory.policies.kernels import observe_ring
from h2o_theory.policies.parts import Parts
from h2o_theory.policies.registry import register

__all__ = ["SnapKV"]

POOLS = ("mean", "max")
POOLED_AT = -1
"""Place in the memory of the step, plus one, of the last pooling; the votes stand before it."""


class Settings(NamedTuple):
    kernel: int
    is_max: bool


@njit(cache=True, nogil=True)
def rate_pooled(t, n, cache, future, settings):
    """Pool the sums of the last W rows over positions; once per step, so that one cut is one."""
    last, half = t - cache.entry.shape[1], settings.kernel // 2
    if cache.memory[POOLED_AT] == t + 1:
        return
    cache.memory[POOLED_AT] = t + 1
    votes = cache.memory
    for i in range(n):
        if cache.position[i] <= last:
            votes[cache.position[i]] = cache.entry[i].sum()
    for i in range(n):
        cache.score[i] = np.inf
        if cache.position[i] <= last:
            pooled = 0.0
            for j in range(
                max(cache.position[i] - half, 0), min(cache.position[i] + half, last) + 1
            ):
                pooled = max(pooled, votes[j]) if settings.is_max else pooled + votes[j]
            cache.score[i] = pooled
    for i in range(n):
        votes[cache.position[i]] = 0.0


@register
@dataclass(frozen=True)
class SnapKV(CompiledPolicy):
    r"""Keep an observation window and the entries whose neighbourhood it attends to most.

    .. math:: v_t(j) = \sum_{t-W < t' \le t} r_{t'}(j), \qquad
              u_t = \arg\min_{j \in S_t,\ j \le t - W} \ \sum_{2 |i - j| < c} v_t(i)

    with c the kernel (odd), or a maximum over the neighbourhood (``pool=max``); positions that
    are gone or outside :math:`0 \dots t - W` count 0, which shrinks the edges.

    Source: arXiv 2404.14469 and FasterDecoding/SnapKV (W = 64, kernel 5, mean). With a prefill the
    cut is theirs: pooled once over the prompt, the best k - 1 - W and the window kept. No
    guarantee. O(k W) per step. PyramidKV and Ada-KV are this rule with budgets by layer and
    kv_head (:mod:`h2o_theory.budgets`). Departures: they cut the prompt alone and let the
    cache grow afterwards; here the window moves on with the text and one entry leaves per step.
    One set per kv_head from the mean over its group (they repeat keys per query head). Below a
    budget of 2 W + 1 the window shrinks to half of it.

    Parameters
    ----------
    window : int
        W.
    kernel : int
        Odd.
    pool : {"mean", "max"}
    group : {"mean", "sum", "max", "first"}
    """

    name: ClassVar[str] = "snapkv"
    source: ClassVar[str] = "arXiv 2404.14469"
    observe: ClassVar = observe_ring
    rate: ClassVar = rate_pooled

    window: int = 64
    kernel: int = 5
    pool: str = "mean"
    group: str = "mean"

    def __post_init__(self):
        super().__post_init__()
        require_whole_number(self, "kernel", 1)
        require_one_of(self, "pool", POOLS)
        if self.kernel % 2 == 0:
            raise BadArgument("the kernel is even", where="snapkv:kernel", got=self.kernel)

    def parts(self, budget):
        """The window and the query's own entry are recent."""
        n_recent = min(self.window, (budget - 1) // 2) + 1
        return Parts(0, budget - n_recent, n_recent)

    def settings(self, context: Context) -> Settings:
        """The kernel and the kind of pooling."""
        return Settings(self.kernel, self.pool == "max")

    def sizes(self, context):
        """The window's rows per entry; sums by position and the step they were pooled at."""
        return max(self.parts(context.budget).n_recent - 1, 1), context.tokens + 1
