"""Fixed sparse attention: the row's own block, and summary columns of the blocks before it."""

from dataclasses import dataclass
from typing import ClassVar

from h2o_theory.masks.base import Mask
from h2o_theory.policies.checks import require_whole_number

__all__ = ["Fixed"]


@dataclass(frozen=True)
class Fixed(Mask):
    r"""See the row's own block, and the last columns of earlier blocks.

    .. math:: S_t = \{ j : \lfloor j/l \rfloor = \lfloor t/l \rfloor \} \cup
              \{ j : j \bmod l \ge l - c \}

    with l half the budget (at least 1). Summary columns come with each block; when they exceed
    the rest of the budget the most recent of them are seen. A block's other keys are gone for good
    when it ends and old summaries do not return, so this one pattern could be a cache.

    Source: Child et al. 2019 (Sparse Transformer). Departures: old summaries are dropped, since
    without it the pattern outgrows every budget; what the H2O paper does (its Table 2) is not
    stated. O(T) per row.

    Parameters
    ----------
    summary : int
        c, summary columns of each block, at most l.
    """

    name: ClassVar[str] = "fixed"
    source: ClassVar[str] = "arXiv 1904.10509"

    summary: int = 1

    def __post_init__(self):
        super().__post_init__()
        require_whole_number(self, "summary", 1)

    def pattern(self, view):
        """Own block and the most recent summaries."""
        length = max(view.budget // 2, 1)
        columns = min(self.summary, length)
        block, place = view.column // length, view.column % length
        own = view.row // length
        # Numbered backwards from the row's block, so that the newest summaries come first.
        age = (own - block - 1) * columns + (length - 1 - place)
        summaries = (block < own) & (place >= length - columns) & (age < view.budget - length)
        return ((block == own) & view.causal) | summaries
