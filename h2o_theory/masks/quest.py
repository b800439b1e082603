"""Quest: pages of keys, chosen by an upper bound on the logits in each."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from h2o_theory.masks.base import Mask, keep_largest, require_pages
from h2o_theory.policies.checks import require_whole_number

__all__ = ["Quest"]


@dataclass(frozen=True)
class Quest(Mask):
    r"""See the pages of keys whose logits could be largest.

    Page P spans ``page`` positions; with its extreme keys :math:`m_P = \min_{j \in P} k_j` and
    :math:`M_P = \max_{j \in P} k_j` (by channel) no logit in it exceeds

    .. math:: u_P(q) = \text{scaling} \sum_c \max(q_c m_{P,c},\ q_c M_{P,c}).

    The row's own page is seen, and the :math:`\lfloor k / page \rfloor - 1` complete pages of
    largest mean :math:`u_P` over the group, the newer among equals. O(T d / page) per row.

    Source: Quest (arXiv 2406.10774), page 16. Departures: all layers are sparse (there the first
    two are dense), and pages are chosen for the group of a kv_head.

    Parameters
    ----------
    page : int
        Tokens per page; the budget pays for whole pages.
    """

    name: ClassVar[str] = "quest"
    needs: ClassVar[str] = "qk"
    source: ClassVar[str] = "arXiv 2406.10774"

    page: int = 16

    def __post_init__(self):
        super().__post_init__()
        require_whole_number(self, "page", 1)

    def pattern(self, view):
        """Own page and the most promising others."""
        count = require_pages(self, "page", view.budget)
        pages = -(-view.tokens // self.page)
        own = view.row // self.page
        complete = np.arange(pages)[None, :] < own
        whole = view.tokens // self.page
        paged = view.keys[: whole * self.page].reshape(whole, self.page, -1)
        low, high = paged.min(axis=1), paged.max(axis=1)
        # max(q m, q M) = q_+ M + q_- m, so the bound of all pages is two matrix products.
        queries = view.own_queries
        bound = np.maximum(queries, 0) @ high.T + np.minimum(queries, 0) @ low.T
        scores = np.zeros((len(view.mean), pages))
        scores[:, :whole] = view.scaling * bound.mean(axis=0)
        chosen = keep_largest(scores, complete, count - 1) | (np.arange(pages)[None, :] == own)
        return np.repeat(chosen, self.page, axis=1)[:, : view.tokens] & view.causal
