"""Part C, the induction: lemmas D.29 and D.30, one step at a time, over small integers.

One step needs few numbers. Take k = 1, i = 2, S_2 = {1}; the swap rule chooses S_3 from {1} and
{2}. Functions may depend on the set they are subscripted with, so opt_2 and opt_3 may come from
other histories and are free, except that opt_2 is at least f(S_2, 2; {1}) and f(S_2, 2; {2}).
A larger cache adds candidates for S_3, not another kind of premise.
"""

import math

import numpy as np

from paper_checks.finding import ASSUMING, CheckFinding, judge

__all__ = ["lemma_d29", "lemma_d30", "step_fails"]

SHARE = 1 - 1 / math.e
I = 2  # noqa: E741
RATES = (0.0, 0.25, 0.5)
"""Values of theta and gamma that are tried."""


def _grid(*tops):
    """All integer points 0..top of each axis, as flat arrays."""
    return (axis.ravel() for axis in np.indices(tuple(top + 1 for top in tops)))


def lemma_d29() -> CheckFinding:
    """One induction step with the exact function, under four sets of premises."""
    by_rule = None
    for constant in (SHARE, 0.1, 1.0):
        by_rule = by_rule or step_fails(rule=True, condition="used", constant=constant)
    any_policy = step_fails(rule=False, condition="used")
    as_defined = step_fails(rule=True, condition="defined")
    filling = _filling_step(monotone=True) or _filling_step_needs_monotone()
    printed = any_policy or as_defined
    remedied = by_rule or filling
    verdict, remedy_holds = judge(printed, remedied, remedied=ASSUMING)
    return CheckFinding(
        verdict,
        "The step f(S_i, i; S_(i+1)) >= f(S_i, i; S_i) does not follow from monotonicity, since "
        "S_(i+1) does not contain S_i. It does follow from the swap rule, which may evict the "
        "newcomer and so keep S_i; monotonicity is needed only while the cache fills. The lemma "
        "then holds with condition 2 in the form it uses, opt_i >= (1-gamma) opt_(i+1); with "
        "condition 2 as D.28 defines it, it does not. Neither submodularity nor the number 1-1/e "
        "plays a part: 0.1 and 1 in its place pass the same way.",
        "integers: f values 0..4, opt 0..6, theta and gamma in 0, 1/4, 1/2; i = 2, k = 1, all "
        "tie-breaks; and the step of a cache that is not full",
        {
            "where S_(i+1) is any set an eviction policy may choose": any_policy,
            "where condition 2 is read as D.28 defines it": as_defined,
        },
        printed,
        remedy_holds,
    )


def step_fails(*, rule, condition, constant=SHARE):
    """The smallest instance with the premises of D.29 and without its conclusion, or None."""
    found = None
    p, q, r, opt_2, opt_3 = _grid(4, 4, 4, 6, 6)
    for theta in RATES:
        for gamma in RATES:
            premises = (p >= constant * ((1 - theta) * (1 - gamma)) ** I * opt_2) & (opt_2 > 0)
            premises &= opt_2 >= np.maximum(q, r)
            premises &= q >= (1 - theta) * p
            if condition == "used":
                premises &= opt_2 >= (1 - gamma) * opt_3
            else:
                premises &= opt_3 >= (1 - gamma) * opt_2
            value = np.maximum(q, r) if rule else np.minimum(q, r)
            bound = constant * ((1 - theta) * (1 - gamma)) ** (I + 1) * opt_3
            bad = np.flatnonzero(premises & (value < bound - 1e-9))
            for at in bad:
                size = p[at] + q[at] + r[at] + opt_2[at] + opt_3[at]
                if found is None or size < found[0]:
                    chosen = 1 if q[at] == value[at] else 2
                    found = (
                        size,
                        {
                            "k": 1,
                            "i": I,
                            "theta": theta,
                            "gamma": gamma,
                            "f(S_1,1; {1}), value before": int(p[at]),
                            "f(S_2,2; {1})": int(q[at]),
                            "f(S_2,2; {2})": int(r[at]),
                            "opt_2": int(opt_2[at]),
                            "opt_3": int(opt_3[at]),
                            "S_3": [chosen],
                            "value after": int(value[at]),
                            "bound claimed": float(bound[at]),
                        },
                    )
    return None if found is None else found[1]


def _filling_step(*, monotone):
    """The step of a cache that is not full, S_3 = {1, 2}: r is now f(S_2, 2; {1, 2})."""
    p, q, r, opt_2, opt_3 = _grid(4, 4, 4, 6, 6)
    for theta in RATES:
        for gamma in RATES:
            rate = (1 - theta) * (1 - gamma)
            premises = (p >= SHARE * rate**I * opt_2) & (opt_2 >= np.maximum(q, r)) & (opt_2 > 0)
            premises &= (q >= (1 - theta) * p) & (opt_2 >= (1 - gamma) * opt_3)
            if monotone:
                premises &= r >= q
            bad = np.flatnonzero(premises & (r < SHARE * rate ** (I + 1) * opt_3 - 1e-9))
            if bad.size:
                return {"f(S_2,2; {1})": int(q[bad[0]]), "f(S_2,2; {1,2})": int(r[bad[0]])}
    return None


def _filling_step_needs_monotone():
    """None if the filling step does fail without monotonicity, as it should."""
    return None if _filling_step(monotone=False) else {"monotonicity": "was not needed"}


def lemma_d30() -> CheckFinding:
    """One induction step with an approximate function: one-sided and two-sided closeness."""
    printed = _approximate_step(two_sided=False, losses=1)
    one_loss = _approximate_step(two_sided=True, losses=1)
    remedied = _approximate_step(two_sided=True, losses=2)
    verdict, remedy_holds = judge(printed, remedied)
    return CheckFinding(
        verdict,
        "The approximation condition bounds f from below by f~ only. Then f~ may miss what S_i is "
        "worth (f~ = 0 meets every premise), and the swap chosen by f~ loses all of it. With "
        "|f - f~| <= eps0 on both sides one step can still lose 2 eps0, so that - i eps0 becomes "
        "- 2i eps0; with both changes the step holds.",
        "integers: f and f~ 0..3, opt_i = opt_(i+1) in 1..9, theta in 0, 1/2, gamma = 0, eps0 in "
        "0, 1/2, 1; i = 2, k = 1, all tie-breaks",
        {"with two-sided closeness but one eps0 per step": one_loss},
        printed,
        remedy_holds,
    )


def _approximate_step(*, two_sided, losses):
    """The smallest instance of D.30 without its conclusion; ties, if any, are broken badly.

    Instances in which f~ chooses without a tie are preferred.
    """
    p, q, r, p_near, q_near, r_near, opt = _grid(3, 3, 3, 3, 3, 3, 9)
    found = None
    for theta in (0.0, 0.5):
        for eps in (0.0, 0.5, 1.0):
            keep = SHARE * (1 - theta) ** I * opt
            premises = (opt >= np.maximum(q, r)) & (opt > 0)
            premises &= p >= keep - losses * I * eps
            premises &= q_near >= (1 - theta) * p_near
            for exact, near in ((p, p_near), (q, q_near), (r, r_near)):
                premises &= exact >= near - eps
                if two_sided:
                    premises &= near >= exact - eps
            bound = keep * (1 - theta) - losses * (I + 1) * eps
            value = np.where(r_near > q_near, r, np.where(q_near > r_near, q, np.minimum(q, r)))
            bad = np.flatnonzero(premises & (value < bound - 1e-9))
            if not bad.size:
                continue
            tie = (q_near == r_near)[bad]
            size = (p + q + r + p_near + q_near + r_near + opt)[bad] + 1000 * tie
            at = bad[size.argmin()]
            if found is None or size.min() < found[0]:
                found = (
                    size.min(),
                    {
                        "k": 1,
                        "i": I,
                        "theta": theta,
                        "gamma": 0.0,
                        "eps0": eps,
                        "f, f~ (S_1,1; {1}), value before": [int(p[at]), int(p_near[at])],
                        "f, f~ (S_2,2; {1})": [int(q[at]), int(q_near[at])],
                        "f, f~ (S_2,2; {2})": [int(r[at]), int(r_near[at])],
                        "opt_2 = opt_3": int(opt[at]),
                        "S_3": [2 if value[at] == r[at] and r_near[at] >= q_near[at] else 1],
                        "value after": int(value[at]),
                        "bound claimed": float(bound[at]),
                    },
                )
    return None if found is None else found[1]
