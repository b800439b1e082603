"""HiP-like block top-k: halve the most promising stretches of keys until they are blocks."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from h2o_theory.masks.base import Mask, require_pages
from h2o_theory.policies.checks import require_share, require_whole_number
from h2o_theory.policies.parts import part_of

__all__ = ["HiP"]


@dataclass(frozen=True)
class HiP(Mask):
    r"""See the blocks found by a tournament in which one key speaks for a stretch of keys.

    The first ``n_sink`` keys and the most recent share ``recent`` of the budget (the row's own key
    at least) are seen. What lies between is cut into m even stretches, m as many as blocks of b
    fit the rest of the budget. While a stretch is longer than b each is halved, and of the 2m
    halves the m stay whose middle key has the largest logit (mean over the group), the newer among
    equals; the row sees the m that are left. O(m log(T/k)) logits per row in place of T.

    Source: HiP attention (arXiv 2406.09827). Departures: one query at a time in place of blocks of
    queries, sinks and window scaled to small budgets, logits before any softcap.

    Parameters
    ----------
    block : int
        b, the length at which halving ends.
    n_sink : int
        First keys that are always seen; as many as fit beside the window and one block.
    recent : float
        Share of the budget for the most recent keys, rounded down.
    """

    name: ClassVar[str] = "hip"
    needs: ClassVar[str] = "qk"
    source: ClassVar[str] = "arXiv 2406.09827"

    block: int = 8
    n_sink: int = 4
    recent: float = 0.25

    def __post_init__(self):
        super().__post_init__()
        require_whole_number(self, "block", 1)
        require_whole_number(self, "n_sink", 0)
        require_share(self, "recent")

    def pattern(self, view):
        """Sinks, window, and the winning stretches between them."""
        window = max(part_of(self.recent, view.budget), 1)
        require_pages(self, "block", view.budget - window)
        sinks = min(self.n_sink, view.budget - window - self.block)
        count = (view.budget - window - sinks) // self.block
        logits = view.scaling * (view.own_queries.mean(axis=0) @ view.keys.T)
        seen = _tournament(logits, view.start, sinks, window, count, self.block)
        always = (view.column < sinks) | (view.row - view.column < window)
        return (seen | always) & view.causal


@njit(cache=True, nogil=True)
def _tournament(logits, start, sinks, window, count, block):
    """The keys of the winning stretches between sinks and window, bool [B, T]."""
    rows, tokens = logits.shape
    seen = np.zeros((rows, tokens), dtype=np.bool_)
    for b in range(rows):
        between = max(start + b - window + 1 - sinks, 0)
        edges = np.empty((2 * count, 2), dtype=np.int64)
        for i in range(count):
            edges[i, 0] = sinks + i * between // count
            edges[i, 1] = sinks + (i + 1) * between // count
        longest = -(-between // count)
        while longest > block:
            halves = edges[:count].copy()
            spoken = np.empty(2 * count)
            for i in range(count):
                low, high = halves[i, 0], halves[i, 1]
                middle = (low + high) // 2
                edges[2 * i, 0], edges[2 * i, 1] = low, middle
                edges[2 * i + 1, 0], edges[2 * i + 1, 1] = middle, high
            for i in range(2 * count):
                low, high = edges[i, 0], edges[i, 1]
                spoken[i] = logits[b, (low + high) // 2] if high > low else -np.inf
            # Stretches are in order of position; a stable sort leaves the newest equals last.
            order = np.sort(np.argsort(spoken, kind="mergesort")[count:])
            edges[:count] = edges[order]
            longest = 0
            for i in range(count):
                longest = max(longest, edges[i, 1] - edges[i, 0])
        for i in range(count):
            seen[b, edges[i, 0] : edges[i, 1]] = True
    return seen
