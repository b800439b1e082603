"""Full cache: nothing is ever evicted."""

from dataclasses import dataclass
from typing import ClassVar

from h2o_theory.policies.base import Parts, Policy
from h2o_theory.policies.registry import register

__all__ = ["Full"]


@register
@dataclass(frozen=True)
class Full(Policy):
    r"""Keep everything, whatever the budget.

    .. math:: S_t = \{0, \dots, t\}

    The reference for every measure; it ignores the budget and so has no approximation ratio.
    """

    name: ClassVar[str] = "full"
    kind: ClassVar[str] = "reference"
    needs: ClassVar[str] = "positions"
    source: ClassVar[str] = "softmax attention"

    def parts(self, budget):
        """All entries are kept."""
        return Parts(0, budget, 0)
