"""Top-k attention: the keys that get most attention from this very row."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from h2o_theory.masks.base import Mask, keep_largest

__all__ = ["TopK"]


@dataclass(frozen=True)
class TopK(Mask):
    r"""See the k keys with most attention from the row itself.

    .. math:: S_t = \{t\} \cup \operatorname{top}_{k-1} \{ \bar A[t, j] : j < t \}

    The row must be computed over all keys first, so nothing is saved; without heavy hitters no
    set of k keys that holds t retains more. O(T log T) per row.

    Source: H2O (arXiv 2306.14048), appendix C.5. Departure: the mean over the query heads of a
    kv_head decides, and the row's own key always counts.
    """

    name: ClassVar[str] = "topk"
    needs: ClassVar[str] = "rows"
    source: ClassVar[str] = "arXiv 2306.14048, C.5"

    def pattern(self, view):
        """The largest entries of each row."""
        own = view.column == view.row
        return keep_largest(np.where(own, np.inf, view.mean), view.causal, view.budget)
