"""Scissorhands as released: an entry lives as long as it stood out in one of the last rows."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from numba import njit

from h2o_theory.errors import BadArgument
from h2o_theory.policies.base import CompiledPolicy, Context
from h2o_theory.policies.parts import Parts
from h2o_theory.policies.registry import register

__all__ = ["ScissorhandsCode"]


class Settings(NamedTuple):
    tokens: int
    quantile: float


@njit(cache=True, nogil=True)
def observe_outstanding(t, n, cache, row, settings):
    """The score is the last step at which the entry exceeded a quantile of the padded row."""
    tokens = settings.tokens
    ordered = cache.memory[:n]
    ordered[:] = row[:n]
    ordered.sort()
    place = settings.quantile * (tokens - 1)
    below = int(place)
    first, second = below - (tokens - n), below + 1 - (tokens - n)
    low = ordered[first] if first >= 0 else 0.0
    high = ordered[min(second, n - 1)] if second >= 0 else 0.0
    threshold = low + (high - low) * (place - below)
    for i in range(n):
        if cache.position[i] == t or row[i] > threshold:
            cache.score[i] = t


@register
@dataclass(frozen=True)
class ScissorhandsCode(CompiledPolicy):
    r"""Evict the entry for which it is longest ago that it exceeded a high quantile of a row.

    .. math:: u_t = \arg\min \{ \ell_t(j) : j \in S_t,\ j < t - r + 2 \}, \qquad
              \ell_t(j) = \max \{ t' \le t : \hat A[t', j] > Q_q(\hat A[t', \cdot]) \}

    with the arrival of j in place of an empty maximum, Q_q the q-quantile (linear interpolation)
    over the row padded with zeros to all T columns, and the r most recent entries protected.

    Source: lzcemma/Scissorhands (q = 0.9, r = 10, window 100, layers 5 to 35 of OPT). No guarantee.
    O(k log k) per step. Departures: the code has no budget: an entry goes once it has not stood
    out for 100 rows, so that the size floats; here the one that would go first goes when its
    place is needed, in all layers. The zeros pull the quantile down: with a budget of
    at most (1 - q) T it is 0, every row exceeds it everywhere, and the rule is a sliding window.
    ``scissorhands`` is the rule of the paper.

    Parameters
    ----------
    quantile : float
        q, from 0 to below 1.
    n_recent : int
        r, the query's own entry included; shrinks to the budget.
    """

    name: ClassVar[str] = "scissorhands_code"
    source: ClassVar[str] = "lzcemma/Scissorhands"
    observe: ClassVar = observe_outstanding

    quantile: float = 0.9
    n_recent: int = 10

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.quantile < 1:
            raise BadArgument(
                "a policy parameter is out of range",
                where=f"{self.name}:quantile",
                got=self.quantile,
                expected="from 0 to below 1",
            )

    def parts(self, budget):
        """The recent window, as far as it fits; the rest is held by score."""
        n_recent = min(self.n_recent, budget)
        return Parts(0, budget - n_recent, n_recent)

    def settings(self, context: Context) -> Settings:
        """T and q."""
        return Settings(context.tokens, self.quantile)

    def sizes(self, context):
        """A work row."""
        return 0, context.tokens + 1
