"""LFU: evict the entry with the fewest accesses."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from h2o_theory.kernels import kernel
from h2o_theory.policies.access import Access, access_of, least_access, resolve_access
from h2o_theory.policies.base import CompiledPolicy, Context
from h2o_theory.policies.registry import register

__all__ = ["Lfu"]


class Settings(NamedTuple):
    access: Access


@kernel(nogil=True)
def observe_count(t, n, cache, row, settings):
    """Count accesses."""
    least = least_access(settings.access, row, n)
    for i in range(n):
        if cache.position[i] == t or row[i] >= least:
            cache.score[i] += 1


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
    threshold : float, optional
        See :mod:`h2o_theory.policies.access`.
    """

    name: ClassVar[str] = "lfu"
    source: ClassVar[str] = "classical paging"
    observe: ClassVar = observe_count

    access: str = "uniform"
    threshold: float | None = None

    def __post_init__(self):
        super().__post_init__()
        resolve_access(self)

    def settings(self, context: Context) -> Settings:
        """The access rule."""
        return Settings(access_of(self))
