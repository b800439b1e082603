r"""What follows from measured conditions.

Lemma D.29 of the H2O paper starts its induction with v_t >= c_t "by monotonicity"; but the swap
gives up an entry, so R_t need not contain R_{t-1}. The step does hold for a rule that may give up
the newcomer and follows f itself. The proof then needs a limit on how fast O_t grows, where
condition D.28 limits how fast it falls. Lemma D.30 bounds f~ - f from one side and uses the other
too. The repaired statement takes the loss of each swap, the growth of O_t and both sides as they
are.
"""

import numpy as np

from h2o_theory.annotations import FloatArray
from h2o_theory.submodular.conditions import Conditions, share

__all__ = ["direct_bound", "repaired_bound"]


def repaired_bound(
    conditions: Conditions, *, seen: bool = False, uniform: bool = False, together: bool = False
) -> FloatArray:
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


def direct_bound(conditions: Conditions) -> FloatArray:
    r"""A certified lower bound on ``v_t / O_t`` without induction: ``(v~_t - eps0_t) / U_t``.

    Proof. ``v_t >= v~_t - eps0_t`` is the approximation condition of Lemma D.30 at R_t. Since it is
    assumed at every step, no error has to be carried from one step to the next. QED.

    Returns
    -------
    numpy.ndarray [N]
        1 where U_t = 0. Where f~ = f it is the ratio itself.
    """
    return share(conditions.seen_value - conditions.excess, conditions.best_upper)
