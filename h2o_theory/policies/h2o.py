"""H2O: heavy hitters by accumulated attention, and a recent window."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from h2o_theory.errors import BadArgument, BadBudget
from h2o_theory.policies.base import GROUP_REDUCTIONS, ROWS, CompiledPolicy
from h2o_theory.policies.checks import require_one_of, require_share, require_whole_number
from h2o_theory.policies.parts import Parts, heavy_part, sinks_within
from h2o_theory.policies.registry import register

__all__ = ["H2O", "observe_sum"]


@njit(cache=True, nogil=True)
def observe_sum(t, n, position, row, score, per_slot, memory, settings):
    """Add the row to the accumulated scores."""
    for i in range(n):
        score[i] += row[i]


@njit(cache=True, nogil=True)
def observe_accumulated(t, n, position, row, score, per_slot, memory, settings):
    """Accumulate: a mean over the rows since arrival, or a sum that decays by a factor."""
    if settings[0] != 0:
        for i in range(n):
            score[i] += (row[i] - score[i]) / (t - position[i] + 1)
    else:
        for i in range(n):
            score[i] = settings[1] * score[i] + row[i]


@register
@dataclass(frozen=True)
class H2O(CompiledPolicy):
    r"""Keep the recent tokens and, of the others, those with most accumulated attention.

    .. math:: s_t(j) = \lambda s_{t-1}(j) + r_t(j), \quad s_{j-1}(j) = 0, \qquad
              u_t = \arg\min \{ s_t(j) : j \in S_t,\ j < t - n_{recent} + 2 \}

    with :math:`\lambda` = ``decay`` (1: the plain sum of the paper), or, with ``score=mean``, the
    mean of :math:`r_{t'}(j)` over the rows :math:`j \le t' \le t`. Here r_t is row t restricted
    to S_t: renormalised over it (what a cache that dropped the others computes) or raw (the
    recorded full row). A token's own attention A[t, t] counts.
    With a prefill, scores accumulate over the prompt's full rows before the one cut.

    Other rules go by the same name: ``h2o_real_drop``, ``h2o_flexgen``, ``h2o_lm_eval`` and
    ``h2o_lm_eval_llama`` are those of the released code, ``algorithm1`` and ``algorithm2`` the
    boxes of the paper, ``heavy`` the ablation without a window; the mask ``h2o_hf`` is the code
    that lets entries come back.

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
    n_recent, n_heavy : int, optional
        The window or the heavy part in tokens, in place of the share. One gives the other; both,
        with ``n_sink``, have to sum to the budget.
    n_sink : int
        First positions protected besides.
    score : {"sum", "mean"}
        The mean by rows seen is the variant the paper rejects (appendix B.2) and others ship.
    decay : float
        In (0, 1]; below 1 the score is an exponential moving sum.
    rows : {"renormalised", "raw"}
    group : {"mean", "sum", "max", "first"}
        Reduction of the row over the query heads that share the kv_head.
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
        require_share(self, "recent")
        if not 0 < self.decay <= 1 or (self.score == "mean" and self.decay != 1):
            raise BadArgument(
                "a policy parameter is out of range",
                where=f"{self.name}:decay",
                got=self.decay,
                expected="above 0 and at most 1, and 1 with score=mean",
            )
        require_whole_number(self, "n_sink", 0)
        for name in ("n_recent", "n_heavy"):
            if getattr(self, name) is not None:
                require_whole_number(self, name, 0)
        require_one_of(self, "score", ("sum", "mean"))
        require_one_of(self, "rows", ROWS)
        require_one_of(self, "group", GROUP_REDUCTIONS)

    def parts(self, budget):
        """Sinks first; of what remains, the share ``1 - recent`` is heavy, rounded down."""
        n_sink = sinks_within(self, self.n_sink, budget, default=0)
        rest = budget - n_sink
        if self.n_recent is None and self.n_heavy is None:
            n_heavy = heavy_part(self.recent, rest)
            return Parts(n_sink, n_heavy, rest - n_heavy)
        if (self.n_recent or 0) + (self.n_heavy or 0) > rest:
            raise BadBudget(
                "the budget is smaller than the policy's protected parts",
                where=self.name,
                got=f"n_sink={n_sink}, n_heavy={self.n_heavy}, n_recent={self.n_recent} with a "
                f"budget of {budget}",
                expected="parts of at most the budget together",
            )
        n_recent = rest - self.n_heavy if self.n_recent is None else self.n_recent
        return Parts(n_sink, rest - n_recent if self.n_heavy is None else self.n_heavy, n_recent)

    @property
    def kernels(self):
        """The plain sum has a loop of its own: a tenth quicker than one that asks at each step."""
        if self.score == "sum" and self.decay == 1:
            return observe_sum, type(self).rate
        return super().kernels

    def settings(self, context):
        """Whether the score is a mean, and the decay."""
        return np.array([float(self.score == "mean"), self.decay])

    @property
    def nested(self):
        """Raw rows do not depend on what the cache holds."""
        return self.rows == "raw"
