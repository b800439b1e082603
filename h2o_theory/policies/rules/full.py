"""Full cache: nothing is ever evicted."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from h2o_theory.policies.base import Context
from h2o_theory.policies.known import KnownSchedule
from h2o_theory.policies.registry import register

__all__ = ["Full"]


@register
@dataclass(frozen=True)
class Full(KnownSchedule):
    r"""Keep everything, whatever the budget.

    .. math:: S_t = \{0, \dots, t\}

    The reference for every measure; it ignores the budget and so has no approximation ratio.
    """

    name: ClassVar[str] = "full"
    kind: ClassVar[str] = "reference"
    source: ClassVar[str] = "softmax attention"
    follows_budget: ClassVar[bool] = False

    def schedule(self, context: Context, optima: object) -> np.ndarray:
        """No token leaves before the end."""
        return np.full(context.tokens, context.tokens)
