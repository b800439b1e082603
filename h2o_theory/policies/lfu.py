"""LFU: evict the entry with the fewest accesses."""

from dataclasses import dataclass
from typing import ClassVar

from numba import njit

from h2o_theory.policies.access import is_access
from h2o_theory.policies.base import Policy
from h2o_theory.policies.registry import register

__all__ = ["Lfu"]


@njit(cache=True, nogil=True)
def observe_count(t, n, position, row, score, per_slot, memory, settings):
    """Count accesses."""
    for i in range(n):
        if is_access(row[i], n, position[i] == t):
            score[i] += 1


@register
@dataclass(frozen=True)
class Lfu(Policy):
    r"""Least frequently used, with an access when a key gets its fair share of the row.

    .. math:: s_t(j) = |\{ t' \le t : \hat A[t', j] \ge 1/|S_{t'}| \text{ or } t' = j \}|,
              \qquad u_t = \arg\min_{j \in S_t} s_t(j)

    Rows are renormalised and averaged over the group. H2O is this rule with the access weighted
    by the attention itself. Among equal counts the oldest leaves. O(k) per step.

    Source: classical paging. Counts are not aged.
    """

    name: ClassVar[str] = "lfu"
    source: ClassVar[str] = "classical paging, access rule: uniform"
    observe: ClassVar = observe_count
