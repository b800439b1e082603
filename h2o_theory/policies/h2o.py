"""H2O: heavy hitters by accumulated attention, and a recent window."""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from numba import njit

from h2o_theory.errors import BadArgument
from h2o_theory.policies.base import (
    GROUP_REDUCTIONS,
    ROWS,
    Parts,
    Policy,
    one_of,
    sinks_within,
    whole_number,
)
from h2o_theory.policies.registry import register

__all__ = ["H2O", "observe_sum"]


@njit(cache=True, nogil=True)
def observe_sum(t, n, position, row, score, per_slot, memory, settings):
    """Add the row to the accumulated scores."""
    for i in range(n):
        score[i] += row[i]


@register
@dataclass(frozen=True)
class H2O(Policy):
    r"""Keep the recent tokens and, of the others, those with most accumulated attention.

    .. math:: s_t(j) = s_{t-1}(j) + r_t(j), \quad s_{j-1}(j) = 0, \qquad
              u_t = \arg\min \{ s_t(j) : j \in S_t,\ j < t - n_{recent} + 2 \}

    where r_t is row t restricted to S_t: renormalised over it (what a cache that dropped the
    others computes) or raw (the recorded full row). A token's own attention A[t, t] counts.
    With a prefill, scores accumulate over the prompt's full rows before the one cut.

    Guarantee: none is known that holds for every trace; see the paper's Theorem 4.4 for the
    conditions it assumes. O(k) per step.

    Source: arXiv 2306.14048, section 4, as its code with true dropping does it. Departures: the
    budget counts the query's own entry, so ``n_recent`` here is that code's window plus one; the
    default prefill is none (streaming, the setting of the theory).

    Parameters
    ----------
    recent : float
        Share of the budget for the recent window; the odd token goes to it, and it holds at
        least the query's own entry.
    n_sink : int
        First positions protected besides.
    rows : {"renormalised", "raw"}
    group : {"mean", "sum", "max", "first"}
        Reduction of the row over the query heads that share the kv_head.
    """

    name: ClassVar[str] = "h2o"
    source: ClassVar[str] = "arXiv 2306.14048"
    observe: ClassVar = observe_sum

    recent: float = 0.5
    n_sink: int = 0
    rows: str = "renormalised"
    group: str = "mean"

    def __post_init__(self):
        if not 0 <= self.recent <= 1:
            raise BadArgument(
                "a policy parameter is out of range",
                where=f"{self.name}:recent",
                got=self.recent,
                expected="a share from 0 to 1",
            )
        whole_number(self, "n_sink", 0)
        one_of(self, "rows", ROWS)
        one_of(self, "group", GROUP_REDUCTIONS)

    def parts(self, budget):
        """Sinks first; of what remains, the share ``1 - recent`` is heavy, rounded down."""
        n_sink = sinks_within(self, self.n_sink, budget, default=0)
        rest = budget - n_sink
        n_heavy = min(int((1 - Fraction(str(self.recent))) * rest), rest - 1)
        return Parts(n_sink, n_heavy, rest - n_heavy)

    @property
    def nested(self):
        """Raw rows do not depend on what the cache holds."""
        return self.rows == "raw"
