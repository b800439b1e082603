"""What a transform is: keys and values as they are stored in fewer bits, and what that costs."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from h2o_theory.policies.base import Parametrised

__all__ = ["FULL_BITS", "Stored", "Transform"]

FULL_BITS = 16
"""Bits of a number in the KV cache that transforms are compared with."""


@dataclass(frozen=True, eq=False)
class Stored:
    """Keys and values of one kv_head as a transform stores them.

    At row t, keys from position ``exact_keys[t]`` on and values from ``exact_values[t]`` on are
    still in full precision; earlier ones are ``keys[j]`` and ``values[j]``.

    Attributes
    ----------
    keys : numpy.ndarray [T, d]
    values : numpy.ndarray [T, dv]
    exact_keys, exact_values : numpy.ndarray [T] int64
    features : tuple (queries [G, T, r], keys [T, r]) or None
        Non-negative features whose product stands for :math:`e^{L}` of an evicted key; None
        forgets what is evicted.
    """

    keys: np.ndarray
    values: np.ndarray
    exact_keys: np.ndarray
    exact_values: np.ndarray
    features: tuple | None = None


@dataclass(frozen=True)
class Transform(Parametrised):
    """Base of all transforms: a frozen dataclass whose fields are the parameters."""

    name: ClassVar[str] = ""
    source: ClassVar[str] = ""

    def stored(self, queries, keys, values, prefill):
        """The :class:`Stored` form of queries [G, T, d], keys [T, d] and values [T, dv].

        Rows before ``prefill`` see everything in full precision. What is stored at row t depends
        on positions up to t alone.
        """
        raise NotImplementedError

    def cache_bits(self, entries, head_dim, value_dim):
        """Most bits that ``entries`` KV entries of one kv_head take; never decreasing."""
        raise NotImplementedError

    def entries_within(self, bits, head_dim, value_dim):
        """Most entries whose :meth:`cache_bits` stay within ``bits``; 0 if none do."""
        low, high = 0, 1
        while self.cache_bits(high, head_dim, value_dim) <= bits:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if self.cache_bits(middle, head_dim, value_dim) <= bits:
                low = middle
            else:
                high = middle
        return low
