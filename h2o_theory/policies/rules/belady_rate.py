"""The rate index: the best mean attention over any horizon ahead."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from h2o_theory.policies.base import CompiledPolicy
from h2o_theory.policies.kernels import future_sums, rate_by_future
from h2o_theory.policies.registry import register

__all__ = ["BeladyRate"]


@register
@dataclass(frozen=True)
class BeladyRate(CompiledPolicy):
    r"""Evict the entry whose best mean future attention, over any horizon, is smallest.

    .. math:: u_t = \arg\min_{j \in S_t} \; \max_{w \in \{1, 2, 4, \dots\}}
              \frac{1}{w} \sum_{t < t' \le t + w} A[t', j]

    An entry is worth keeping as long as some horizon repays the place it takes. Clairvoyant, on
    the recorded full rows averaged over the group. No guarantee; in measurements the nearest of
    the simple oracles to the optimum. O(T^2 log T) time, 8 T^2 bytes for the table.

    Source: an index in the manner of Gittins; ours.
    """

    name: ClassVar[str] = "belady_rate"
    kind: ClassVar[str] = "clairvoyant"
    source: ClassVar[str] = "h2o_theory"
    rate: ClassVar = rate_by_future

    def table(self, mean_rows):
        """The index of every entry at every step."""
        best, w = np.zeros_like(mean_rows), 1
        while True:
            np.maximum(best, future_sums(mean_rows, w) / w, out=best)
            if w >= len(mean_rows):
                return best
            w *= 2
