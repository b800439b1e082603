"""What the paper says would follow from measured conditions, beside what does."""

from dataclasses import dataclass

import numpy as np

from h2o_theory.submodular.conditions import Conditions
from h2o_theory.submodular.repaired import direct_bound, repaired_bound

__all__ = ["GuaranteeBounds", "Premises", "guarantee_bounds", "paper_premises"]

_GREEDY = 1 - np.exp(-1)


@dataclass(frozen=True)
class Premises:
    """Whether the premises of Theorem 4.4 hold, and what is left of its conclusion if they do.

    The premises are theta = gamma = alpha / (10 n) and eps0 = beta / (10 n) at every step, n the
    number of tokens; the conclusion ``f >= (1 - 1/e)(1 - alpha) opt - beta``. The readings are
    monotone as the theorem wants; of a function of your own, :func:`refute_dynamic` can tell.

    Attributes
    ----------
    theta, gamma, gamma_used, excess, swap_loss : float
        The largest over all steps, theta, excess and swap_loss as f~ has them.
    alpha, alpha_used : float
        Least alpha that the premises permit: ``10 n max(theta, gamma)``, with gamma as defined and
        in the direction that the proof uses.
    beta : float
        Least beta: ``10 n eps0``.
    swaps_follow_rule : bool
        The policy's every swap is that of rule D.22 under f~.
    swap_never_loses : bool
        ``swap_loss`` is 0, the unstated premise of the induction.
    hold : bool
        alpha_used < 1, the swaps follow the rule and never lose.
    vacuous : bool
        With these alpha and beta the conclusion is not above 0 at any step.
    """

    theta: float
    gamma: float
    gamma_used: float
    excess: float
    swap_loss: float
    alpha: float
    alpha_used: float
    beta: float
    swaps_follow_rule: bool
    swap_never_loses: bool
    hold: bool
    vacuous: bool


def paper_premises(conditions: Conditions) -> Premises:
    """The premises of Theorem 4.4 against what was measured: :class:`Premises`."""
    theta, gamma = float(conditions.seen_theta.max()), float(conditions.gamma.max())
    used, excess = float(conditions.gamma_used.max()), float(conditions.excess.max())
    loss = float(conditions.seen_swap_loss.max())
    scale = 10.0 * conditions.tokens
    alpha_used, beta = scale * max(theta, used), scale * excess
    follows, never = bool(conditions.is_swap_rule.all()), loss <= 1e-12
    conclusion = _GREEDY * (1 - alpha_used) * conditions.best_upper - beta
    return Premises(
        theta,
        gamma,
        used,
        excess,
        loss,
        scale * max(theta, gamma),
        alpha_used,
        beta,
        follows,
        never,
        alpha_used < 1 and follows and never,
        not (conclusion > 0).any(),
    )


@dataclass(frozen=True, eq=False)
class GuaranteeBounds:
    """Bounds at each step beside the ratio achieved, float64 [N].

    Attributes
    ----------
    ratio : numpy.ndarray
        v_t / O_t; over the upper bound where O_t is not exact.
    direct : numpy.ndarray
        :func:`direct_bound`.
    together : numpy.ndarray
        :func:`repaired_bound` under f, with pace in place of theta and gamma.
    repaired : numpy.ndarray
        :func:`repaired_bound` under f: each step pays for itself.
    repaired_seen : numpy.ndarray
        The same under f~, with the differences of f~ and f.
    uniform : numpy.ndarray
        Under f, with the worst conditions of all steps at each.
    paper : numpy.ndarray
        What Lemma D.30 (D.29 where f~ = f) says of v_t / O_{t+1}, its constants being the worst
        measured: ``(1-1/e)(1-theta)^i (1-gamma_used)^i - i eps0 / O_{t+1}``, i = t + 2; NaN at
        the last step.
    ratio_next : numpy.ndarray
        v_t / O_{t+1}, the ratio that the lemma is about; NaN at the last step. Where it is below
        ``paper``, the lemma's conclusion fails.
    """

    ratio: np.ndarray
    direct: np.ndarray
    together: np.ndarray
    repaired: np.ndarray
    repaired_seen: np.ndarray
    uniform: np.ndarray
    paper: np.ndarray
    ratio_next: np.ndarray


def guarantee_bounds(conditions: Conditions) -> GuaranteeBounds:
    """All bounds of a measurement: :class:`GuaranteeBounds`."""
    following = np.append(conditions.best_upper[1:], np.nan)
    exponent = conditions.step + 2
    factor = (1 - conditions.seen_theta.max()) * (1 - conditions.gamma_used.max())
    # Where the next best value is 0, both sides of the lemma are 0: a ratio of 1, no loss.
    whole = np.where(following == 0, np.inf, following)
    ratio_next = np.where(following == 0, 1.0, conditions.value / whole)
    return GuaranteeBounds(
        ratio=conditions.ratio,
        direct=direct_bound(conditions),
        together=repaired_bound(conditions, together=True),
        repaired=repaired_bound(conditions),
        repaired_seen=repaired_bound(conditions, seen=True),
        uniform=repaired_bound(conditions, uniform=True),
        paper=_GREEDY * factor**exponent - exponent * conditions.excess.max() / whole,
        ratio_next=ratio_next,
    )
