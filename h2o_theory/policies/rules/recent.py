"""Sliding window: the most recent tokens."""

from dataclasses import dataclass
from typing import ClassVar

from h2o_theory.policies.base import CompiledPolicy
from h2o_theory.policies.parts import Parts
from h2o_theory.policies.registry import register

__all__ = ["Recent"]


@register
@dataclass(frozen=True)
class Recent(CompiledPolicy):
    r"""Keep the last k tokens.

    .. math:: S_t = \{t-k+1, \dots, t\}

    No guarantee: all attention may lie on tokens outside the window. O(1) state beyond the set.
    With a prefill the cut keeps the last k - 1 prompt tokens.

    Source: the "local" baseline of the H2O paper (arXiv 2306.14048). Departure: none; some
    released code shows the query one key more, which is this policy at k + 1.
    """

    name: ClassVar[str] = "recent"
    needs: ClassVar[str] = "positions"
    source: ClassVar[str] = "local baseline, arXiv 2306.14048"

    def parts(self, budget):
        """Everything is recent."""
        return Parts(0, 0, budget)
