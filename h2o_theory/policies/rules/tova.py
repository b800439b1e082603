"""TOVA: evict what the last query attends to least."""

from dataclasses import dataclass
from typing import ClassVar

from numba import njit

from h2o_theory.policies.base import CompiledPolicy
from h2o_theory.policies.checks import require_one_of
from h2o_theory.policies.registry import register

__all__ = ["Tova"]


@njit(cache=True, nogil=True)
def observe_last(t, n, cache, row, settings):
    """The score is the last row."""
    for i in range(n):
        cache.score[i] = row[i]


@register
@dataclass(frozen=True)
class Tova(CompiledPolicy):
    r"""Evict the entry with the least attention from the current query.

    .. math:: u_t = \arg\min_{j \in S_t} \frac{1}{H} \sum_h \hat A_h[t, j]

    with the mean over all query heads of the layer, which then share one retained set
    (``shared=layer``), or over the group of each kv_head alone (``shared=kv_head``).
    With a prefill the one cut uses the last prompt row only. No sinks, no window: the newcomer
    may leave at once. No guarantee known. O(H k) per step and layer.

    Source: arXiv 2401.06104; its code ships the layer-wide form. Departure: the budget counts
    the query's own entry (that code shows the query k + 1 keys).
    """

    name: ClassVar[str] = "tova"
    source: ClassVar[str] = "arXiv 2401.06104"
    observe: ClassVar = observe_last

    shared: str = "layer"

    def __post_init__(self):
        super().__post_init__()
        require_one_of(self, "shared", ("layer", "kv_head"))

    @property
    def scope(self):
        """As asked for by ``shared``."""
        return self.shared
