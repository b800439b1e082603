"""LFU: evict the entry with the fewest accesses."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from h2o_theory.kernels import kernel
from h2o_theory.policies.access import access_settings, least_access, settle_access
from h2o_theory.policies.base import CompiledPolicy
from h2o_theory.policies.registry import register

__all__ = ["Lfu"]


@kernel(nogil=True)
def observe_count(t, n, position, row, score, per_slot, memory, settings):
    """Count accesses."""
    least = least_access(settings[0], settings[1], row, n)
    for i in range(n):
        if position[i] == t or row[i] >= least:
            score[i] += 1


@register
@dataclass(frozen=True)
class Lfu(CompiledPolicy):
    r"""Evict the entry with the fewest accesses.

    .. math:: s_t(j) = |\{ t' \le t : \hat A[t', j] \ge a_{t'} \text{ or } t' = j \}|,
              \qquad u_t = \arg\min_{j \in S_t} s_t(j)

    with :math:`a_t = 1/|S_t|`, a key's fair share, unless another rule is chosen. Rows are
    renormalised and averaged over the group. H2O is this rule with the access weighted by the
    attention itself. Among equal counts the oldest leaves. No guarantee here. O(k) per step.

    Source: classical paging. Departures: counts are not aged.

    Parameters
    ----------
    access : {"uniform", "relative", "top_m", "absolute"}
    level : float, optional
        See :mod:`h2o_theory.policies.access`.
    """

    name: ClassVar[str] = "lfu"
    source: ClassVar[str] = "classical paging"
    observe: ClassVar = observe_count

    access: str = "uniform"
    level: float | None = None

    def __post_init__(self):
        settle_access(self)

    def settings(self, context):
        """The access rule."""
        return np.array(access_settings(self))
