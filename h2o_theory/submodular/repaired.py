r"""What follows from measured conditions, and what the paper says would follow.

Lemma D.29 of the H2O paper starts its induction with v_t >= c_t "by monotonicity"; but the swap
gives up an entry, so R_t does not contain R_{t-1}, and the step holds only for a rule that may
give up the newcomer and follows f itself. It then needs O_t not to grow, where condition D.28
says that it does not shrink. Lemma D.30 bounds f~ - f from one side and uses the other too. The
repaired statement takes the loss of each swap, the growth of O_t and both sides as they are.
"""

from dataclasses import dataclass

import numpy as np

from h2o_theory.submodular.conditions import share

__all__ = [
    "GuaranteeBounds",
    "Premises",
    "direct_bound",
    "guarantee_bounds",
    "paper_premises",
    "repaired_bound",
]

_GREEDY = 1 - np.exp(-1)


def repaired_bound(conditions, *, seen=False, uniform=False, together=False):
    r"""A certified lower bound on ``v_t / O_t`` at each step, by the paper's kind of induction.

    **Statement.** With U_t >= O_t any upper bounds, gamma_t those of ``gamma_used`` for U, and
    r_t = v_t / U_t, for every t after the first

    .. math:: r_t \ge (1-s_t)(1-\theta_t)(1-\gamma_t)\, r_{t-1},

    and with theta and s measured under f~, e_t = max(0, v~_t - v_t), d_t = max(0, v_t - v~_t),

    .. math:: r_t \ge (1-\tilde s_t)(1-\tilde\theta_t)(1-\gamma_t)
              \Big[r_{t-1} - \frac{d_{t-1}}{U_{t-1}}\Big] - \frac{e_t}{U_t}.

    ``pace`` may stand for theta and gamma together: (1 - x_t) in place of
    (1 - theta_t)(1 - gamma_t). The bound unrolls this from r at the first step, where nothing was
    chosen yet. Since U_t >= O_t, it is a bound on v_t / O_t too.

    **Proof.** v_t >= (1-s_t) c_t >= (1-s_t)(1-theta_t) v_{t-1} by the definitions of s and theta.
    Divide by U_t and use 1 / U_t >= (1-gamma_t) / U_{t-1} and v_{t-1} >= 0; or divide the first
    inequality by U_t and use c_t / U_t >= (1-x_t) r_{t-1}. Under f~,
    v_t >= v~_t - e_t, the same for v~_t, and v~_{t-1} >= v_{t-1} - d_{t-1}. All factors are at
    least 0, so a bound on r_{t-1}, also a negative one, can be put in its place. Where U_t = 0,
    v_t = 0 = O_t and the ratio is 1 by convention; then d_t = 0 as well. QED.

    Nothing is assumed of f beyond values of at least 0: no submodularity, no monotonicity, no rule
    by which the policy chooses. Of the paper's factor 1 - 1/e nothing is left: the induction
    starts at a full set, whose measured ratio replaces it.

    Parameters
    ----------
    conditions : Conditions
    seen : bool
        Measure theta and s under f~, as the policy could, and pay for the differences of f~ and f
        on its own sets; otherwise under f.
    uniform : bool
        Use the worst theta, s, gamma and differences of all steps at each: what the paper's kind
        of premises gives, that hold at every step with one constant.
    together : bool
        Use ``pace`` for theta and gamma.

    Returns
    -------
    numpy.ndarray [N]
        One lower bound for each of ``conditions.step``; 0 or less says nothing. Up to rounding of
        float64.
    """
    prefix = "seen_" if seen else ""
    lost = [getattr(conditions, f"{prefix}swap_loss")]
    if together:
        lost.append(getattr(conditions, f"{prefix}pace"))
    else:
        lost += [getattr(conditions, f"{prefix}theta"), conditions.gamma_used]
    difference = conditions.seen_value - conditions.value if seen else np.zeros(len(lost[0]))
    over, under = np.maximum(difference, 0.0), np.maximum(-difference, 0.0)
    if uniform:
        *lost, over, under = (np.full(len(x), x.max()) for x in (*lost, over, under))
    kept = np.prod([1.0 - x for x in lost], axis=0)
    upper, bound = conditions.best_upper, np.empty(len(kept))
    bound[0] = conditions.ratio[0]
    for i in range(1, len(bound)):
        if upper[i] <= 0:
            bound[i] = 1.0
            continue
        known = bound[i - 1] - (under[i - 1] / upper[i - 1] if upper[i - 1] > 0 else 0.0)
        bound[i] = kept[i] * known - over[i] / upper[i]
    return bound


def direct_bound(conditions):
    r"""A certified lower bound on ``v_t / O_t`` without induction: ``(v~_t - eps0_t) / U_t``.

    Proof. ``v_t >= v~_t - eps0_t`` is the approximation condition of Lemma D.30 at R_t. Since it is
    assumed at every step, no error has to be carried from one step to the next. QED.

    Returns
    -------
    numpy.ndarray [N]
        1 where U_t = 0. Where f~ = f it is the ratio itself.
    """
    return share(conditions.seen_value - conditions.excess, conditions.best_upper)


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


def paper_premises(conditions):
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


def guarantee_bounds(conditions):
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
