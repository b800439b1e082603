"""Belady's rule on soft attention: evict the entry whose next access is farthest."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from h2o_theory.kernels import kernel
from h2o_theory.policies.access import access_of, least_access, resolve_access
from h2o_theory.policies.base import CompiledPolicy
from h2o_theory.policies.checks import require_one_of
from h2o_theory.policies.kernels import rate_by_future
from h2o_theory.policies.registry import register

__all__ = ["Belady"]


@kernel(nogil=True)
def _next_access_scores(rows, access):
    tokens = rows.shape[0]
    scores = np.empty((tokens, tokens))
    upcoming = np.full(tokens, 2.0 * tokens)
    for t in range(tokens - 1, -1, -1):
        for j in range(tokens):
            scores[t, j] = -upcoming[j]
        least = least_access(access, rows[t], t + 1)
        for j in range(t):
            if rows[t, j] >= least:
                upcoming[j] = t
    return scores


@kernel(nogil=True)
def _remaining_accesses(rows, access):
    tokens = rows.shape[0]
    counts = np.zeros((tokens, tokens))
    for t in range(tokens - 2, -1, -1):
        least = least_access(access, rows[t + 1], t + 2)
        for j in range(t + 1):
            counts[t, j] = counts[t + 1, j] + (1.0 if rows[t + 1, j] >= least else 0.0)
    return counts


@register
@dataclass(frozen=True)
class Belady(CompiledPolicy):
    r"""Evict the entry whose next access lies farthest in the future (never: first to go).

    .. math:: u_t = \arg\max_{j \in S_t} \min\{ t' > t : A[t', j] \ge a_{t'} \}

    Clairvoyant: accesses are judged on the recorded full rows, averaged over the group, with
    :math:`a_t = 1/(t+1)` unless another rule is chosen. Belady's MIN is optimal for paging with
    refetch and unit costs; here a token that left cannot come back and misses have weights, so
    this is a heuristic, not a bound. O(T^2) time and 8 T^2 bytes for the table.

    ``form=count`` evicts the entry with the fewest accesses still to come, the natural analogue
    where nothing is fetched back.

    Source: Belady 1966, and footnote 1 of arXiv 2306.14048.

    Parameters
    ----------
    form : {"next", "count"}
    access : {"uniform", "relative", "top_m", "absolute"}
        How good the rule is hangs on this choice.
    threshold : float, optional
        See :mod:`h2o_theory.policies.access`.
    """

    name: ClassVar[str] = "belady"
    kind: ClassVar[str] = "clairvoyant"
    source: ClassVar[str] = "Belady 1966"
    rate: ClassVar = rate_by_future

    form: str = "next"
    access: str = "uniform"
    threshold: float | None = None

    def __post_init__(self):
        super().__post_init__()
        resolve_access(self)
        require_one_of(self, "form", ("next", "count"))

    def table(self, mean_rows):
        """Minus the step of the next access after t (twice T if none), or the accesses left."""
        if self.form == "count":
            return _remaining_accesses(mean_rows, access_of(self))
        return _next_access_scores(mean_rows, access_of(self))
