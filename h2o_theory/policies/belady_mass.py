"""Belady's idea for masses: evict the entry with the least attention still to come."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from h2o_theory.policies.base import Policy
from h2o_theory.policies.belady import rate_by_table
from h2o_theory.policies.registry import register

__all__ = ["BeladyMass"]


@register
@dataclass(frozen=True)
class BeladyMass(Policy):
    r"""Evict the entry with the least remaining future mass.

    .. math:: u_t = \arg\min_{j \in S_t} \sum_{t' > t} A[t', j]

    Clairvoyant, on the recorded full rows averaged over the group. Not optimal: a token may be
    worth much later and cost many entries until then. O(T^2) time, 8 T^2 bytes for the table.

    Source: the future-sum oracle of the KV-cache literature. No guarantee.
    """

    name: ClassVar[str] = "belady_mass"
    kind: ClassVar[str] = "clairvoyant"
    source: ClassVar[str] = "future-sum oracle"
    rate: ClassVar = rate_by_table

    def table(self, mean_rows):
        """Suffix sums over rows after t."""
        table = np.zeros_like(mean_rows)
        table[:-1] = np.cumsum(mean_rows[:0:-1], axis=0)[::-1]
        return table
