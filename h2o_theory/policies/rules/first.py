"""The first tokens and the most recent ones, however the budget is shared between them."""

from dataclasses import dataclass
from typing import ClassVar

from h2o_theory.policies.base import CompiledPolicy
from h2o_theory.policies.parts import Parts, heavy_part
from h2o_theory.policies.registry import register

__all__ = ["First"]


@register
@dataclass(frozen=True)
class First(CompiledPolicy):
    r"""Keep the first tokens of the sequence and the last ones.

    .. math:: S_t = \{0, \dots, k - r - 1\} \cup \{t - r + 1, \dots, t\}

    with r the share ``recent`` of the budget, at least 1. What a heavy-hitter policy with a frozen
    set degenerates to, hence a baseline that it has to beat. No guarantee. O(1) per step.

    Source: degenerate H2O; with ``recent=1`` the sliding window.

    Parameters
    ----------
    recent : float
        Share of the budget for the window.
    """

    name: ClassVar[str] = "first"
    needs: ClassVar[str] = "positions"
    source: ClassVar[str] = "frozen heavy hitters"

    recent: float = 0.5

    def parts(self, budget):
        """The first tokens are sinks; the share ``1 - recent`` is rounded down."""
        n_sink = heavy_part(self.recent, budget)
        return Parts(n_sink, 0, budget - n_sink)
