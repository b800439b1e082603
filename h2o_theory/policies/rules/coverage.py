"""Greedy coverage: keep the recent rows covered, and no row more than enough."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numba import njit

from h2o_theory.errors import BadArgument
from h2o_theory.policies.base import CompiledPolicy, Context
from h2o_theory.policies.kernels import observe_ring
from h2o_theory.policies.parts import Parts, heavy_part
from h2o_theory.policies.registry import register

__all__ = ["Coverage"]


class Settings(NamedTuple):
    cap: float


@njit(cache=True, nogil=True)
def rate_coverage(t, n, cache, future, settings):
    """The score is what the recent rows would lose of their coverage, to nine digits."""
    cap, window, covered = settings.cap, cache.entry.shape[1], cache.memory
    covered[:] = 0.0
    for i in range(n):
        for s in range(window):
            covered[s] += cache.entry[i, s]
    for i in range(n):
        loss = 0.0
        for s in range(window):
            loss += min(covered[s], cap) - min(covered[s] - cache.entry[i, s], cap)
        cache.score[i] = np.rint(1e9 * loss)


@register
@dataclass(frozen=True)
class Coverage(CompiledPolicy):
    r"""Removal greedy for saturated coverage of the last rows.

    .. math:: f_t(S) = \sum_{t - w < t' \le t} \min\Big( c, \sum_{j \in S} r_{t'}(j) \Big), \qquad
              u_t = \arg\min \{ f_t(S_t) - f_t(S_t \setminus \{j\}) : j < t - n_{recent} + 2 \}

    f_t is monotone and submodular: once a row is covered to c, more of it is worth nothing, and
    many entries tie; losses are compared to nine digits, so that rounding decides nothing. The
    saturated cousin of ``greedy``, over a window of rows instead of all of them.

    Guarantee: removal greedy has none of its own; build greedy would have 1 - 1/e for one f_t.
    O(k w) per eviction. Source: saturated coverage, Lin and Bilmes 2011; ours as an eviction rule.

    Parameters
    ----------
    cap : float
        c, in (0, 1].
    window : int
        w.
    recent : float
        Share of the budget for the recent window, as in ``h2o``.
    rows : {"raw", "renormalised"}
    group : {"mean", "sum", "max", "first"}
    """

    name: ClassVar[str] = "coverage"
    source: ClassVar[str] = "saturated coverage, Lin and Bilmes 2011"
    observe: ClassVar = observe_ring
    rate: ClassVar = rate_coverage

    cap: float = 0.9
    window: int = 64
    recent: float = 0.25
    rows: str = "raw"
    group: str = "mean"

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.cap <= 1:
            raise BadArgument(
                "a policy parameter is out of range",
                where="coverage:cap",
                got=self.cap,
                expected="above 0 and at most 1",
            )

    def parts(self, budget):
        """The share ``1 - recent`` is held by score, rounded down."""
        n_heavy = heavy_part(self.recent, budget)
        return Parts(0, n_heavy, budget - n_heavy)

    def settings(self, context: Context) -> Settings:
        """The cap."""
        return Settings(self.cap)

    def sizes(self, context):
        """The last rows of each entry, and their sums."""
        window = min(self.window, context.tokens)
        return window, window
