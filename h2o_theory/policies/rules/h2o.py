"""H2O: heavy hitters by accumulated attention, and a recent window."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from numba import njit

from h2o_theory.errors import BadArgument
from h2o_theory.policies.base import CompiledPolicy, Context
from h2o_theory.policies.checks import require_one_of
from h2o_theory.policies.kernels import observe_sum
from h2o_theory.policies.parts import Parts, split_parts
from h2o_theory.policies.registry import register

__all__ = ["H2O"]


class Settings(NamedTuple):
    is_mean: bool
    decay: float


@njit(cache=True, nogil=True)
def observe_accumulated(t, n, cache, row, settings):
    """Accumulate: a mean over the rows since arrival, or a sum that decays by a factor."""
    for i in range(n):
        if settings.is_mean:
            cache.score[i] += (row[i] - cache.score[i]) / (t - cache.position[i] + 1)
        else:
            cache.score[i] = settings.decay * cache.score[i] + row[i]


@register
@dataclass(frozen=True)
class H2O(CompiledPolicy):
    r"""Keep the recent tokens and, of the others, those with most accumulated attention.

    .. math:: s_t(j) = \lambda s_{t-1}(j) + r_t(j), \quad s_{j-1}(j) = 0, \qquad
              u_t = \arg\min \{ s_t(j) : j \in S_t,\ j < t - n_{recent} + 2 \}

    with r_t row t over S_t, a token's own attention included, and :math:`\lambda` = ``decay``
    (1 in the paper); ``score=mean`` is the mean of r over the rows since j arrived, which the paper
    rejects (B.2) and others ship. A prefill counts the prompt's full rows before the one cut.

    Guarantee: none for every trace; Theorem 4.4 of the paper has conditions. O(k) per step.

    Source: arXiv 2306.14048, section 4, as its code with true dropping does it. Departures: the
    budget counts the query's own entry, so ``n_recent`` is that code's window plus one; no prefill
    by default. Of the same name elsewhere: ``h2o_real_drop``, ``h2o_flexgen``, ``h2o_lm_eval``,
    ``h2o_lm_eval_llama`` (released code), ``algorithm1``, ``algorithm2`` (the paper's boxes),
    ``heavy`` (no window) and the mask ``h2o_hf`` (entries come back).

    Parameters
    ----------
    recent : float
        Share of the budget for the window, which gets the odd token and at least the query's own.
    n_recent, n_heavy : int, optional
        Window or heavy part in tokens instead; both, with ``n_sink``, have to sum to the budget.
    n_sink : int
        First positions protected besides.
    score : {"sum", "mean"}
    decay : float
        In (0, 1], and 1 with ``score=mean``.
    rows : {"renormalised", "raw"}
    group : {"mean", "sum", "max", "first"}
    """

    name: ClassVar[str] = "h2o"
    source: ClassVar[str] = "arXiv 2306.14048"
    observe: ClassVar = observe_accumulated

    recent: float = 0.5
    n_recent: int | None = None
    n_heavy: int | None = None
    n_sink: int = 0
    score: str = "sum"
    decay: float = 1.0
    rows: str = "renormalised"
    group: str = "mean"

    def __post_init__(self):
        super().__post_init__()
        require_one_of(self, "score", ("sum", "mean"))
        if not 0 < self.decay <= 1 or (self.score == "mean" and self.decay != 1):
            raise BadArgument(
                "decay must be above 0 and at most 1, and 1 with score=mean",
                where=self.name,
                got=self.decay,
            )

    def parts(self, budget: int) -> Parts:
        """Sinks first; of what remains, the share ``1 - recent`` is heavy, rounded down."""
        return split_parts(self, budget)

    @property
    def kernels(self) -> tuple:
        """The plain sum has a loop of its own: a tenth quicker than one that asks at each step."""
        if self.score == "sum" and self.decay == 1:
            return observe_sum, type(self).rate
        return super().kernels

    def settings(self, context: Context) -> Settings:
        """Whether the score is a mean, and the decay."""
        return Settings(self.score == "mean", self.decay)

    @property
    def nested(self) -> bool:
        """Raw rows do not depend on what the cache holds."""
        return self.rows == "raw"
