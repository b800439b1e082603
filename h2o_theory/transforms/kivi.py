"""KIVI: keys quantised by channel, values by token, the most recent ones kept exact."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from h2o_theory.errors import BadArgument
from h2o_theory.policies.checks import require_one_of, require_whole_number
from h2o_theory.transforms.base import FULL_BITS, Stored, Transform
from h2o_theory.transforms.quantise import group_bits, quantise

__all__ = ["KIVI"]


@dataclass(frozen=True)
class KIVI(Transform):
    r"""Quantise keys per channel and values per token, each by groups; recent ones stay exact.

    A key's channel c shares its range with the same channel of the ``group`` - 1 keys beside it;
    a value's channels share theirs by groups of ``group``. At row t the keys from
    :math:`R \lfloor t / R \rfloor` on are exact (the residual is flushed when R are together), and
    the R most recent values.

    Source: KIVI (arXiv 2402.02750) and its code, group 32, residual 32 in its examples. Departures:
    groups are of neighbours in the sequence, evicted or not, since an entry is quantised once;
    scale and minimum are in half precision. The bits are those of a cache that holds the whole
    residual; a policy that evicts recent entries needs fewer. O(T d) once.

    Parameters
    ----------
    bits : {2, 4, 8}
    group : int
        Numbers that share a scale and a minimum.
    residual : int
        R, a multiple of ``group``.
    """

    name: ClassVar[str] = "kivi"
    source: ClassVar[str] = "arXiv 2402.02750"

    bits: int = 4
    group: int = 32
    residual: int = 32

    def __post_init__(self):
        require_one_of(self, "bits", (2, 4, 8))
        require_whole_number(self, "group", 1)
        require_whole_number(self, "residual", 1)
        if self.residual % self.group:
            raise BadArgument(
                "keys are flushed by whole groups",
                where=f"{self.name}:residual",
                got=f"residual={self.residual}, group={self.group}",
                expected="a multiple of group",
            )

    def stored(self, queries, keys, values, prefill):
        """Both quantised, with the residuals of each row."""
        row = np.arange(len(keys))
        flushed = row // self.residual * self.residual
        spilled = np.maximum(row + 1 - self.residual, 0)
        flushed[:prefill] = spilled[:prefill] = 0
        return Stored(
            quantise(keys, self.bits, 0, self.group),
            quantise(values, self.bits, 1, self.group),
            flushed,
            spilled,
        )

    def cache_bits(self, entries, head_dim, value_dim):
        """The residual in 16 bits, the rest in few, with a scale and a minimum for each group."""
        exact = min(entries, self.residual)
        key = head_dim * group_bits(self.bits, self.group)
        value = value_dim * group_bits(self.bits, min(self.group, value_dim))
        return FULL_BITS * exact * (head_dim + value_dim) + (entries - exact) * (key + value)
