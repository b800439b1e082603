"""Quality joined to cost: options with a measured loss, and the cheapest within a target."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from h2o_theory.costs.estimate import CostEstimate
from h2o_theory.errors import BadArgument, NotEnoughData

__all__ = ["Option", "cheapest", "frontier"]


@dataclass(frozen=True)
class Option:
    """A policy at a budget: what it costs, and what it loses if that was measured.

    Attributes
    ----------
    policy, budget : str
        As asked for.
    entries : float
        Entries of a kv_head at the end, the mean over layers.
    estimate : CostEstimate
    loss : float
        Measured; NaN if it was not.
    """

    policy: str
    budget: str
    entries: float
    estimate: CostEstimate
    loss: float = math.nan

    def beats(self, other: "Option") -> bool:
        """No slower, no larger and no worse, and better in one of them."""
        mine = (-self.estimate.tokens_per_second, self.estimate.peaks.device, self.loss)
        theirs = (-other.estimate.tokens_per_second, other.estimate.peaks.device, other.loss)
        return all(a <= b for a, b in zip(mine, theirs, strict=True)) and mine != theirs


def frontier(options: Sequence[Option]) -> list[Option]:
    """The options with a loss that no other one beats, quickest first."""
    known = [option for option in options if not math.isnan(option.loss)]
    best = [one for one in known if not any(other.beats(one) for other in known)]
    return sorted(best, key=lambda one: -one.estimate.tokens_per_second)


def cheapest(options: Sequence[Option], target: float) -> Option:
    """The option with fewest entries whose measured loss is at most the target.

    Among equals the quicker one. Only what was measured is chosen; nothing is interpolated.

    Raises
    ------
    BadArgument
        For a target that is no number.
    NotEnoughData
        If no option has a loss, or none keeps within the target: then the nearest is named.
    """
    if not math.isfinite(target):
        raise BadArgument("the target of the loss must be a finite number", got=target)
    known = [option for option in options if not math.isnan(option.loss)]
    if not known:
        raise NotEnoughData(
            "the results hold no loss for any of these policies and budgets",
            hint="Measure them with h2o-theory live or replay, or name others",
        )
    within = [option for option in known if option.loss <= target]
    if not within:
        nearest = min(known, key=lambda option: option.loss)
        raise NotEnoughData(
            f"no measured policy and budget keeps the loss within {target:g}",
            got=f"at best {nearest.loss:.3g} by {nearest.policy} at {nearest.budget}",
            hint="Measure larger budgets, or allow more loss",
        )
    return min(within, key=lambda one: (one.entries, -one.estimate.tokens_per_second))
