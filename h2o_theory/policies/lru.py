"""LRU: evict the entry whose last access is longest ago."""

from dataclasses import dataclass
from typing import ClassVar

from numba import njit

from h2o_theory.policies.access import is_access
from h2o_theory.policies.base import Policy
from h2o_theory.policies.registry import register

__all__ = ["Lru"]


@njit(cache=True, nogil=True)
def observe_last_access(t, n, position, row, score, per_slot, memory, settings):
    """The score is the step of the last access."""
    for i in range(n):
        if is_access(row[i], n, position[i] == t):
            score[i] = t


@register
@dataclass(frozen=True)
class Lru(Policy):
    r"""Least recently used, with an access when a key gets its fair share of the row.

    .. math:: s_t(j) = \max\{ t' \le t : \hat A[t', j] \ge 1/|S_{t'}| \text{ or } t' = j \},
              \qquad u_t = \arg\min_{j \in S_t} s_t(j)

    Soft attention touches every key in every row, so without such a rule LRU is the sliding
    window. Rows are renormalised and averaged over the group. Evict-only: a token that left
    does not come back. O(k) per step.

    Source: classical paging; the access rule follows common cache implementations for attention.
    """

    name: ClassVar[str] = "lru"
    source: ClassVar[str] = "classical paging, access rule: uniform"
    observe: ClassVar = observe_last_access
