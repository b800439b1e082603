"""VATP: accumulated attention times the size of the value."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from h2o_theory.policies.base import CompiledPolicy
from h2o_theory.policies.parts import Parts, heavy_part, sinks_within
from h2o_theory.policies.registry import register

__all__ = ["Vatp"]

NORM = 0
"""Place of the value's norm among what is kept with an entry."""


@njit(cache=True, nogil=True)
def observe_weighted(t, n, cache, row, settings):
    """Add the row, weighted by the norm of the value."""
    for i in range(n):
        cache.score[i] += row[i] * cache.entry[i, NORM]


@register
@dataclass(frozen=True)
class Vatp(CompiledPolicy):
    r"""Evict the least product of accumulated attention and value norm.

    .. math:: s_t(j) = \|v_j\|_1 \sum_{j \le t' \le t} r_{t'}(j), \qquad
              u_t = \arg\min \{ s_t(j) : s \le j < t - n_{recent} + 2 \}

    A key that is attended to adds to the output what its value adds: a large share of a tiny
    value is little. The first tokens have tiny values and are protected instead.
    No guarantee known. O(k) per step.

    Source: arXiv 2406.12335, in its combination with H2O (L1 norm, first tokens kept).
    Departures: 4 sinks as in StreamingLLM; the budget counts the query's own entry.

    Parameters
    ----------
    recent : float
        Share of what the sinks leave for the recent window.
    n_sink : int
        The default shrinks to fit.
    rows : {"renormalised", "raw"}
    group : {"mean", "sum", "max", "first"}
    """

    name: ClassVar[str] = "vatp"
    needs: ClassVar[str] = "rows values"
    source: ClassVar[str] = "arXiv 2406.12335"
    observe: ClassVar = observe_weighted

    recent: float = 0.5
    n_sink: int = 4
    rows: str = "renormalised"
    group: str = "mean"

    def parts(self, budget):
        """Sinks first; of what remains, the share ``1 - recent`` is heavy, rounded down."""
        n_sink = sinks_within(self, self.n_sink, budget, default=4)
        n_heavy = heavy_part(self.recent, budget - n_sink)
        return Parts(n_sink, n_heavy, budget - n_sink - n_heavy)

    @property
    def nested(self):
        """Raw rows do not depend on what the cache holds."""
        return self.rows == "raw"

    def features(self, context):
        """The L1 norm of each value."""
        return np.abs(context.tensors.values).sum(axis=1, keepdims=True)
