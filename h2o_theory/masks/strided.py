"""Strided sparse attention: a local window and a comb that moves with the row."""

from dataclasses import dataclass
from typing import ClassVar

from h2o_theory.masks.base import Mask

__all__ = ["Strided"]


@dataclass(frozen=True)
class Strided(Mask):
    r"""See the most recent keys and every l-th before them, counted back from the row.

    .. math:: S_t = \{ j : t - j < w \} \cup \{ j : (t - j) \bmod l = 0 \}

    with w half the budget (at least 1) and l the smallest stride with which the comb fits the rest
    at every row, :math:`w + \lfloor (T-1)/l \rfloor \le k`. The comb moves, so keys return.

    Source: Child et al. 2019 (Sparse Transformer). Departure: there w = l; how the H2O paper fits
    the pattern to a budget (its Table 2) is not stated. O(T) per row.
    """

    name: ClassVar[str] = "strided"
    source: ClassVar[str] = "arXiv 1904.10509"

    def pattern(self, view):
        """Window and comb."""
        window = max(view.budget // 2, 1)
        teeth = view.budget - window
        age = view.row - view.column
        seen = age < window
        if teeth:
            # Row T-1 has the most teeth: floor((T-1) / l) of them must fit.
            stride = max((view.tokens - 1) // (teeth + 1) + 1, 1)
            seen |= age % stride == 0
        return seen & view.causal
