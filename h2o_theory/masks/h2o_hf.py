"""H2O as the released masking code has been since its repair: keys leave for a row, and return."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from h2o_theory.errors import BadArgument
from h2o_theory.masks.base import Mask
from h2o_theory.policies.checks import require_share
from h2o_theory.policies.parts import heavy_part

__all__ = ["H2OHf"]


@dataclass(frozen=True)
class H2OHf(Mask):
    r"""See a recent window and heavy hitters, the key between them hidden for one row.

    .. math:: V_t = H_{t-1} \cup \{t - rb + 1, \dots, t\}, \quad
              s_t(j) = s_{t-1}(j) + \hat A[t, j] \ (j \in V_t), \quad
              H_t = \operatorname{top}_{hb} (s_t;\ H_{t-1} \cup \{t - rb\})

    where :math:`\hat A` is the row renormalised over V_t, k = hb + rb and
    :math:`hb = \lfloor (1 - recent) k \rfloor`. Row t does not see the key t - rb that has just
    left the window, but its score stays: if it is among the hb largest, row t + 1 sees it again,
    so that this is no cache. What loses is gone for good. The p rows of a prompt see everything,

    .. math:: s_{p-1}(j) = \sum_{t < p} A[t, j], \qquad
              H_{p-1} = \operatorname{top}_{hb} (s_{p-1};\ \{0, \dots, p - 1 - rb\}).

    No guarantee known. O(T) per row, O(p^2) once after a prompt.

    Source: FMInference/H2O, ``h2o_hf/utils_hh`` since June 2024. Before, the key was seen by the
    accident of an aliased array: that is the policy ``h2o_real_drop``. Departures: (1) the code
    takes hb and rb as shares of the prompt, here of the budget; (2) it chooses only when there
    are more than k keys, so that one row after a prompt of at most k tokens sees k + 1; here no
    row does; (3) one set per kv_head by the mean over its query heads, of equals the newer stay,
    float64 scores (the code knows no groups, leaves ties open, sums in half precision); (4) a
    window of nothing is refused: the code's mask then hides every newcomer, from itself too,
    and the prompt's heavy hitters are all that is ever seen.

    Parameters
    ----------
    recent : float
        rb as a share of the budget, above 0; the heavy part is rounded down.
    """

    name: ClassVar[str] = "h2o_hf"
    needs: ClassVar[str] = "rows"
    source: ClassVar[str] = "FMInference/H2O utils_hh since June 2024"
    # No parameter of this mask: it has heavy hitters of its own.
    heavy: ClassVar[float] = 0.0

    recent: float = 0.5

    def __post_init__(self):
        require_share(self, "recent")
        if self.recent == 0:
            raise BadArgument(
                "a window of nothing is a known bug of the released code: no newcomer is ever "
                "seen, not by itself either, and the set freezes on the prompt",
                where=f"{self.name}:recent",
                got=self.recent,
                expected="a share above 0",
                hint="The policy heavy keeps heavy hitters without a window",
            )

    def begin(self, budget, tokens, prefill):
        """Scores of zero, and every key still in the running."""
        return _HeavyAndRecent(heavy_part(self.recent, budget), budget, tokens, prefill)


class _HeavyAndRecent:
    """The scores of a kv_head, and the keys that have not lost yet."""

    def __init__(self, heavy, budget, tokens, prefill):
        self._heavy, self._recent, self._prefill = heavy, budget - heavy, prefill
        self._score, self._running = np.zeros(tokens), np.ones(tokens, dtype=np.bool_)

    def pattern(self, view):
        """Go on from the rows before."""
        seen = np.zeros(view.mean.shape, dtype=np.bool_)
        _advance(
            view.rows,
            view.sink_share,
            view.start,
            (self._heavy, self._recent, self._prefill),
            self._score,
            self._running,
            seen,
        )
        return seen


@njit(cache=True, nogil=True)
def _advance(rows, sink_share, start, parts, score, running, seen):
    """Write the keys that rows [G, B, T] see to ``seen`` [B, T], row after row."""
    heavy, recent, prefill = parts
    group, count, _ = rows.shape
    # The first row for which the one before it chooses.
    first = max(prefill, heavy + recent)
    for b in range(count):
        t = start + b
        seen[b, : t + 1] = running[: t + 1]
        if t >= first:
            seen[b, t - recent] = False
        for g in range(group):
            mass = 1.0
            if t >= prefill:
                mass = sink_share[g, b]
                for j in range(t + 1):
                    if seen[b, j]:
                        mass += rows[g, b, j]
            if mass > 0:
                for j in range(t + 1):
                    if seen[b, j]:
                        score[j] += rows[g, b, j] / mass / group
        if t + 1 >= first:
            _drop_lightest(score[: t - recent + 1], running[: t - recent + 1], heavy)


@njit(cache=True, nogil=True)
def _drop_lightest(score, running, heavy):
    """Leave ``heavy`` keys in the running; of equals the oldest go."""
    for _ in range(running.sum() - heavy):
        lightest = -1
        for j in range(len(score)):
            if running[j] and (lightest < 0 or score[j] < score[lightest]):
                lightest = j
        running[lightest] = False
