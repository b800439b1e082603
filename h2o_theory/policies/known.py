"""Policies that have nothing left to decide: their schedule is known before the first row."""

from dataclasses import dataclass

import numpy as np

from h2o_theory.policies.base import Context, Policy

__all__ = ["KnownSchedule"]


@dataclass(frozen=True)
class KnownSchedule(Policy):
    """Base of policies whose schedule is known beforehand; override :meth:`schedule`.

    Nothing runs row by row for them: the engine measures what the schedule keeps.
    """

    needs = "positions"

    @property
    def needs_future(self) -> bool:
        """Never: what the future has to say is in the schedule."""
        return False

    def schedule(self, context: Context, optima: object) -> np.ndarray:
        """``evicted_at`` int64 [T]: key j is visible to row t iff ``j <= t <= evicted_at[j]``."""
        raise TypeError(f"{type(self).__name__} must define schedule(context, optima)")
