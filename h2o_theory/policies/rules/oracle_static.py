"""Heavy hitters by global statistics: column sums over the whole sequence, future included."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from h2o_theory.policies.base import CompiledPolicy
from h2o_theory.policies.kernels import rate_by_future
from h2o_theory.policies.parts import Parts, heavy_part
from h2o_theory.policies.registry import register

__all__ = ["OracleStatic"]


@register
@dataclass(frozen=True)
class OracleStatic(CompiledPolicy):
    r"""Keep the tokens with most attention over the whole sequence, and recent ones.

    .. math:: u_t = \arg\min \Big\{ \sum_{t'=j}^{T-1} A[t', j] : j \in S_t,\
              j < t - n_{recent} + 2 \Big\}

    The paper's "global statistics": H2O with a score that is known from the start and never
    changes. Clairvoyant, and neither an upper nor a lower bound of anything. O(T^2).

    Source: arXiv 2306.14048, section 4.1 (global against local statistics).

    Parameters
    ----------
    recent : float
        Share of the budget for the recent window, as in ``h2o``.
    """

    name: ClassVar[str] = "oracle_static"
    kind: ClassVar[str] = "clairvoyant"
    source: ClassVar[str] = "arXiv 2306.14048, 4.1"
    rate: ClassVar = rate_by_future

    recent: float = 0.5

    def parts(self, budget):
        """The share ``1 - recent`` is heavy, rounded down."""
        n_heavy = heavy_part(self.recent, budget)
        return Parts(0, n_heavy, budget - n_heavy)

    def table(self, mean_rows):
        """The same column sums at every step."""
        return np.tile(mean_rows.sum(axis=0), (len(mean_rows), 1))
