"""The exact offline optimum, replayed like any other policy."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from h2o_theory.policies.base import Context
from h2o_theory.policies.known import KnownSchedule
from h2o_theory.policies.registry import register

__all__ = ["Optimum"]


@register
@dataclass(frozen=True)
class Optimum(KnownSchedule):
    r"""The evict-only schedule with the largest retained mass over all scored rows.

    .. math:: \max \sum_t \sum_{j \in S_t} A[t, j] \quad \text{over } |S_t| \le k,\
              t \in S_t \subseteq S_{t-1} \cup \{t\}

    Clairvoyant and exact for the recorded rows (:mod:`h2o_theory.optimum`); its approximation
    ratio is 1 by construction, and the engine checks it against the solver's own value.
    """

    name: ClassVar[str] = "optimum"
    kind: ClassVar[str] = "clairvoyant"
    source: ClassVar[str] = "minimum-cost flow"
    needs_optimum: ClassVar[bool] = True

    def schedule(self, context: Context, optima: Any) -> np.ndarray:
        """The solver's schedule at that budget."""
        return optima.schedule(context.prefill, context.budget)
