"""Scissorhands: evict what was unimportant most often in the recent rows."""

from dataclasses import dataclass
from typing import ClassVar

from h2o_theory.kernels import kernel
from h2o_theory.policies.access import is_access
from h2o_theory.policies.base import CompiledPolicy
from h2o_theory.policies.parts import Parts
from h2o_theory.policies.registry import register

__all__ = ["Scissorhands"]


@kernel(nogil=True)
def observe_unimportant(t, n, cache, row, settings):
    """Minus the number of the last w rows in which the entry got less than its fair share."""
    place = t % cache.entry.shape[1]
    for i in range(n):
        unimportant = 0.0 if is_access(row[i], n, False) else 1.0
        cache.score[i] += cache.entry[i, place] - unimportant
        cache.entry[i, place] = unimportant


@register
@dataclass(frozen=True)
class Scissorhands(CompiledPolicy):
    r"""Evict the entry that was below its fair share in most of the last w rows.

    .. math:: c_t(j) = |\{ t' \in (t - w, t] : \hat A[t', j] < 1/|S_{t'}| \}|, \qquad
              u_t = \arg\max \{ c_t(j) : j \in S_t,\ j < t - r + 2 \}

    with the r most recent entries protected. Rests on the hypothesis that importance persists; no
    guarantee without it. O(k) per step, 8 k w bytes.

    Source: arXiv 2305.17118 (w = 400, r = 10). Departures: one entry leaves per step rather than
    many at once, and equal counts go by age. Below a budget of 11 the window shrinks to it.

    Parameters
    ----------
    window : int
        w, rows looked back on.
    n_recent : int
        r, the query's own entry included.
    """

    name: ClassVar[str] = "scissorhands"
    source: ClassVar[str] = "arXiv 2305.17118"
    observe: ClassVar = observe_unimportant

    window: int = 400
    n_recent: int = 10

    def parts(self, budget):
        """The recent window, as far as it fits; the rest is held by count."""
        n_recent = min(self.n_recent, budget)
        return Parts(0, budget - n_recent, n_recent)

    def sizes(self, context):
        """One flag per row of the window."""
        return min(self.window, context.tokens), 0
