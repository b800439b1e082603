"""H2O as built into FlexGen: heavy entries and a ring whose oldest is always promoted."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numba import njit

from h2o_theory.policies.base import CompiledPolicy, Context
from h2o_theory.policies.parts import Parts
from h2o_theory.policies.registry import register

__all__ = ["H2OFlexgen"]

SUM = 0
"""Place of the accumulated attention among what is kept with an entry."""


class Settings(NamedTuple):
    n_recent: int
    prefill: int


@njit(cache=True, nogil=True)
def observe_kept_sum(t, n, cache, row, settings):
    """Accumulate beside the score, which the promotion overrides."""
    for i in range(n):
        cache.entry[i, SUM] += row[i]


@njit(cache=True, nogil=True)
def rate_unless_promoted(t, n, cache, future, settings):
    """Accumulated attention; the entry about to leave the ring cannot lose."""
    promoted = t - settings.n_recent + 1 if t >= settings.prefill else -1
    for i in range(n):
        cache.score[i] = np.inf if cache.position[i] == promoted else cache.entry[i, SUM]


@register
@dataclass(frozen=True)
class H2OFlexgen(CompiledPolicy):
    r"""Evict the heavy entry with least accumulated attention; the ring's oldest replaces it.

    With m heavy places H and a ring Rg of the m - 1 entries before the query's own,

    .. math:: s_t(j) = s_{t-1}(j) + \hat A[t, j], \quad u_t = \arg\min_{j \in H} s_t(j), \quad
              H \leftarrow H \setminus \{u_t\} \cup \{o\}, \quad o = \min Rg

    so o enters H even where its own score is the lowest: a segmented LRU without a test at the
    door. A row sees k = 2 m entries; an odd budget gives the odd place to H. After the cut that
    ends a prefill all m heavy entries are chosen by score.

    Source: FMInference/H2O, ``h2o_flexgen`` with ``--hh-all``. No guarantee known. O(k) per step.
    Departures: m = 1 works (the code divides by m - 1), float64 scores, positions as recorded.
    """

    name: ClassVar[str] = "h2o_flexgen"
    source: ClassVar[str] = "FMInference/H2O h2o_flexgen"
    observe: ClassVar = observe_kept_sum
    rate: ClassVar = rate_unless_promoted

    def parts(self, budget):
        """Half is the ring with the query's own entry, rounded down, at least one."""
        n_recent = max(budget // 2, 1)
        return Parts(0, budget - n_recent, n_recent)

    def settings(self, context: Context) -> Settings:
        """The ring's length with the query's own entry, and the first step that promotes."""
        return Settings(self.parts(context.budget).n_recent, context.prefill)

    def sizes(self, context):
        """The accumulated attention of each entry."""
        return 1, 0
