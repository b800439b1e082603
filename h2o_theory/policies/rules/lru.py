"""LRU: evict the entry whose last access is longest ago."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from h2o_theory.kernels import kernel
from h2o_theory.policies.access import Access, access_of, least_access, resolve_access
from h2o_theory.policies.base import CompiledPolicy, Context
from h2o_theory.policies.registry import register

__all__ = ["Lru"]


class Settings(NamedTuple):
    access: Access


@kernel(nogil=True)
def observe_last_access(t, n, cache, row, settings):
    """The score is the step of the last access."""
    least = least_access(settings.access, row, n)
    for i in range(n):
        if cache.position[i] == t or row[i] >= least:
            cache.score[i] = t


@register
@dataclass(frozen=True)
class Lru(CompiledPolicy):
    r"""Evict the entry whose last access is longest ago.

    .. math:: s_t(j) = \max\{ t' \le t : \hat A[t', j] \ge a_{t'} \text{ or } t' = j \},
              \qquad u_t = \arg\min_{j \in S_t} s_t(j)

    with :math:`a_t = 1/|S_t|`, a key's fair share, unless another rule is chosen. Soft attention
    touches every key in every row, so without such a rule LRU is the sliding window. Rows are
    renormalised and averaged over the group. Evict-only: a token that left does not come back.
    No guarantee here. O(k) per step.

    Source: classical paging; the access rules follow common cache implementations for attention.

    Parameters
    ----------
    access : {"uniform", "relative", "top_m", "absolute"}
    threshold : float, optional
        See :mod:`h2o_theory.policies.access`.
    """

    name: ClassVar[str] = "lru"
    source: ClassVar[str] = "classical paging"
    observe: ClassVar = observe_last_access

    access: str = "uniform"
    threshold: float | None = None

    def __post_init__(self):
        super().__post_init__()
        resolve_access(self)

    def settings(self, context: Context) -> Settings:
        """The access rule."""
        return Settings(access_of(self))
