"""No transform: keys and values in full precision."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from h2o_theory.transforms.base import FULL_BITS, Stored, Transform

__all__ = ["Exact"]


@dataclass(frozen=True)
class Exact(Transform):
    """Store every number in 16 bits; what the others are compared with."""

    name: ClassVar[str] = "exact"

    def stored(self, queries, keys, values, prefill):
        """All of it, as it is."""
        nothing_rounded = np.zeros(len(keys), dtype=np.int64)
        return Stored(keys, values, nothing_rounded, nothing_rounded)

    def cache_bits(self, entries, head_dim, value_dim):
        """16 bits for each number."""
        return FULL_BITS * entries * (head_dim + value_dim)
