"""Sparsity of attention, in the two countings that the literature mixes up."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["SPARSITY_THRESHOLD", "SparsityCount", "count_sparse"]

SPARSITY_THRESHOLD = 0.01
"""Default share of the row's maximum below which an entry counts as sparse (1 %)."""


@dataclass(frozen=True)
class SparsityCount:
    """How many entries fall below the threshold, out of how many; counts add up over blocks.

    Attributes
    ----------
    below : int
        Causal entries below ``threshold`` times their row's maximum.
    causal : int
        Causal entries counted, keys 0..t of each row t.
    square : int
        Entries of the same rows when the future is counted too.
    """

    below: int = 0
    causal: int = 0
    square: int = 0

    def __add__(self, other: "SparsityCount") -> "SparsityCount":
        return SparsityCount(
            self.below + other.below, self.causal + other.causal, self.square + other.square
        )

    @property
    def causal_share(self) -> float:
        """Sparse share of the causal entries alone."""
        return self.below / self.causal

    @property
    def square_share(self) -> float:
        """Sparse share of the whole T x T square, where every future entry is a zero.

        About one half even for uniform attention, which is why it must not be quoted alone.
        """
        return (self.below + self.square - self.causal) / self.square


def count_sparse(
    rows: NDArray[Any], start: int, threshold: float = SPARSITY_THRESHOLD
) -> SparsityCount:
    r"""Count entries with :math:`A[g,t,j] < \text{threshold} \cdot \max_i A[g,t,i]`.

    Parameters
    ----------
    rows : array [G, n, T]
        Rows ``start .. start + n`` of one kv_head.
    start : int
        Index of the first row.
    threshold : float
        Share of the row's maximum.

    Returns
    -------
    SparsityCount
    """
    group, count, tokens = rows.shape
    causal = np.arange(tokens) <= (start + np.arange(count))[:, None]
    small = rows < threshold * rows.max(axis=-1, keepdims=True)
    return SparsityCount(
        below=int((small & causal).sum()),
        causal=int(group * causal.sum()),
        square=group * count * tokens,
    )
