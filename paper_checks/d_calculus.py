"""Part D, derivatives (D.33 to D.46): against autograd in float64 and finite differences."""

import itertools

import numpy as np
import torch
from torch.autograd.functional import hessian, jacobian

from paper_checks.finding import CheckFinding, judge
from paper_checks.regression import Objective, random_objective, small_instances

__all__ = [
    "claim_d34",
    "claim_d42",
    "def_d33",
    "def_d35",
    "lemma_d44_1",
    "lemma_d44_2",
    "lemma_d44_3",
    "lemma_d44_4",
    "lemma_d44_5",
    "lemma_d45",
    "lemma_d46",
]

RUNS = 60
AGREE = 1e-9
"""Relative deviation from autograd that counts as rounding."""
EFFORT = f"{RUNS} random (A, b, x), n <= 7, d <= 4, float64 autograd and central differences"


def def_d33() -> CheckFinding:
    """Are there D that are (alpha, tau, k)-good, and does "for all x" leave room for S_0?"""
    matrix = np.array([[3.0, 0.0], [0.0, 1.0], [0.0, -1.0], [3.0, 0.5]])
    points = [np.array([1.0, s]) for s in np.linspace(-2, 2, 81)]
    supports = [set(np.flatnonzero(np.exp(matrix @ x) > 5).tolist()) for x in points]
    core = set.intersection(*supports)
    extra = max(len(support - core) for support in supports)
    at_zero = int((np.exp(matrix @ np.zeros(2)) > 5).sum())
    verdict, _ = judge(None if core and extra else {"S_0": sorted(core)}, None)
    return CheckFinding(
        verdict,
        f"Satisfiable: for exp(Ax) along a segment of x, with tau = 5, S_0 has {len(core)} "
        f"elements and at most {extra} other joins. Taken for all x it is strict: at x = 0 all "
        f"entries are 1, so with tau >= 1 the support is empty ({at_zero} elements), and so is "
        "S_0.",
        "exp(Ax) with a fixed 4 x 2 matrix at 81 points and at 0",
    )


def claim_d34() -> CheckFinding:
    """n samples of a good D: S_0 in every support, the union at most alpha k n larger."""
    tried, counterexample = 0, None
    for core_size, budget, samples in itertools.product((1, 2), (0, 1, 2), (1, 2, 3)):
        core = frozenset(range(core_size))
        rest = [frozenset(s) for r in range(budget + 1) for s in itertools.combinations("abc", r)]
        for extra in itertools.product(rest, repeat=samples):
            supports = [core | more for more in extra]
            inside = core <= frozenset.intersection(*supports)
            small = len(frozenset.union(*supports) - core) <= budget * samples
            tried += 1
            if not (inside and small) and counterexample is None:
                counterexample = {"S_0": sorted(core), "supports": [list(s) for s in supports]}
    verdict, _ = judge(counterexample, None)
    return CheckFinding(
        verdict,
        "Both parts hold for every family of supports with at most alpha k extra elements each.",
        f"{tried} families: |S_0| <= 2, alpha k <= 2 extra out of three elements, n <= 3 samples",
        {},
        counterexample,
    )


def def_d35() -> CheckFinding:
    """The definitions D.35 to D.43 fit together: f is a distribution, L is their sum."""
    rng = np.random.default_rng(0)
    gap = 0.0
    for _ in range(RUNS):
        objective, x = random_objective(rng, int(rng.integers(1, 8)), int(rng.integers(1, 5)))
        u, alpha = objective.u(x), objective.alpha(x)
        gap = max(
            gap,
            float((objective.f(x) - u / alpha).abs().max()),
            abs(float(objective.f(x).sum()) - 1),
        )
    verdict, _ = judge(None if gap < AGREE else {"largest deviation": gap}, None)
    return CheckFinding(
        verdict,
        f"f = u/alpha is positive and sums to one (largest deviation {gap:.1e}).",
        f"{RUNS} random (A, b, x), n <= 7, d <= 4",
    )


def claim_d42() -> CheckFinding:
    """L_sparse = |exp(Ax)|_1 = <u, 1>."""
    return _compare(
        lambda o, x: o.l_sparse(x),
        lambda o, x: o.alpha(x),
        "|exp(Ax)|_1 = <exp(Ax), 1>: exponentials are positive.",
        f"{RUNS} random (A, b, x), n <= 7, d <= 4",
    )


def lemma_d44_1() -> CheckFinding:
    """d exp(Ax) / dx_i = exp(Ax) * A_i."""
    return _derivative(lambda o, x: o.u(x), lambda o, x: o.u(x)[:, None] * o.matrix)


def lemma_d44_2() -> CheckFinding:
    """d <exp(Ax), 1> / dx_i = <exp(Ax), A_i>."""
    return _derivative(lambda o, x: o.alpha(x), lambda o, x: o.u(x) @ o.matrix)


def lemma_d44_3() -> CheckFinding:
    """d alpha^-1 / dx_i = -alpha^-1 <f, A_i>."""
    return _derivative(lambda o, x: 1 / o.alpha(x), lambda o, x: -(o.f(x) @ o.matrix) / o.alpha(x))


def lemma_d44_4() -> CheckFinding:
    """df / dx_i = -<f, A_i> f + f * A_i."""
    return _derivative(
        lambda o, x: o.f(x),
        lambda o, x: o.f(x)[:, None] * o.matrix - torch.outer(o.f(x), o.f(x) @ o.matrix),
    )


def _printed_gradient(objective, x):
    """A^T ( f (f-b)^T f + diag(f) (f-b) )."""
    f, c = objective.f(x), objective.f(x) - objective.target
    return objective.matrix.T @ (f * (c @ f) + f * c)


def _mended_gradient(objective, x):
    """A^T ( -f (f-b)^T f + diag(f) (f-b) )."""
    f, c = objective.f(x), objective.f(x) - objective.target
    return objective.matrix.T @ (f * c - f * (c @ f))


def lemma_d44_5() -> CheckFinding:
    """dL_exp / dx_i as printed, and with the sign of the first term changed."""
    printed = None
    for n in (1, 2):
        for matrix, target, x in small_instances(n, 1, (0, 1, -1), (0, 1)):
            objective, x = Objective(matrix, target, np.zeros(n)), torch.as_tensor(x)
            true = jacobian(objective.l_exp, x)
            got = _printed_gradient(objective, x)
            if printed is None and float((true - got).abs().max()) > 1e-9:
                printed = {
                    "A": matrix.tolist(),
                    "b": target.tolist(),
                    "x": x.tolist(),
                    "f": objective.f(x).tolist(),
                    "derivative by autograd": true.tolist(),
                    "central difference": _difference(objective.l_exp, x).tolist(),
                    "printed formula": got.tolist(),
                }
    gap, difference = _gaps(lambda o, x: o.l_exp(x), _mended_gradient)
    verdict, remedy_holds = judge(printed, None if gap < AGREE else {"deviation": gap})
    return CheckFinding(
        verdict,
        "The first term has the wrong sign. With A^T( -f (f-b)^T f + diag(f) (f-b) ) the formula "
        f"agrees with autograd to {gap:.1e} and with central differences to {difference:.1e}. "
        "(With n = 1, f is the constant 1, so the derivative must be 0.)",
        "integer instances (n <= 2, d = 1, entries -1..1, b in 0, 1) in order of size; the repair "
        "on " + EFFORT,
        {},
        printed,
        remedy_holds,
    )


def lemma_d45() -> CheckFinding:
    """d2u / dx_i dx_j = A_j * u * A_i."""
    return _second_derivative(
        lambda o, x: o.u(x),
        lambda o, x: torch.einsum("ni,n,nj->nij", o.matrix, o.u(x), o.matrix),
    )


def lemma_d46() -> CheckFinding:
    """d2 alpha / dx_i dx_j = <u, A_i * A_j>, and d2 alpha / dx2 = A^T diag(u) A."""
    return _second_derivative(
        lambda o, x: o.alpha(x)[None],
        lambda o, x: (o.matrix.T @ torch.diag(o.u(x)) @ o.matrix)[None],
    )


def _gaps(function, formula):
    """Largest relative deviations of a formula from autograd and from central differences."""
    rng = np.random.default_rng(0)
    gap = difference = 0.0
    for _ in range(RUNS):
        objective, x = random_objective(rng, int(rng.integers(1, 8)), int(rng.integers(1, 5)))
        got = formula(objective, x)

        def of_x(y, o=objective):
            return function(o, y)

        size = 1 + float(got.abs().max())
        gap = max(gap, float((jacobian(of_x, x) - got).abs().max()) / size)
        difference = max(difference, float((_difference(of_x, x) - got).abs().max()) / size)
    return gap, difference


def _difference(function, x, step=1e-5):
    """Central differences along each coordinate, in the last axis."""
    columns = []
    for i in range(len(x)):
        shift = torch.zeros_like(x)
        shift[i] = step
        columns.append((function(x + shift) - function(x - shift)) / (2 * step))
    return torch.stack(columns, dim=-1)


def _derivative(function, formula):
    gap, difference = _gaps(function, formula)
    agrees = gap < AGREE and difference < 1e-6
    verdict, _ = judge(None if agrees else {"largest relative deviation": gap}, None)
    return CheckFinding(
        verdict,
        f"Largest relative deviation from autograd {gap:.1e}, from central differences "
        f"{difference:.1e}.",
        EFFORT,
    )


def _second_derivative(function, formula):
    rng = np.random.default_rng(0)
    gap = 0.0
    for _ in range(RUNS // 3):
        objective, x = random_objective(rng, int(rng.integers(1, 6)), int(rng.integers(1, 4)))
        got = formula(objective, x)
        for row in range(got.shape[0]):
            true = hessian(lambda y, o=objective, r=row: function(o, y)[r], x)
            gap = max(gap, float((true - got[row]).abs().max()) / (1 + float(got.abs().max())))
    verdict, _ = judge(None if gap < AGREE else {"largest relative deviation": gap}, None)
    return CheckFinding(
        verdict,
        f"Largest relative deviation from autograd {gap:.1e}.",
        f"{RUNS // 3} random (A, x), n <= 5, d <= 3, float64 autograd",
    )


def _compare(first, second, summary, effort):
    rng = np.random.default_rng(0)
    gap = 0.0
    for _ in range(RUNS):
        objective, x = random_objective(rng, int(rng.integers(1, 8)), int(rng.integers(1, 5)))
        size = 1 + float(second(objective, x).abs().max())
        gap = max(gap, float((first(objective, x) - second(objective, x)).abs().max()) / size)
    verdict, _ = judge(None if gap < AGREE else {"largest deviation": gap}, None)
    return CheckFinding(verdict, f"{summary} Largest relative deviation {gap:.1e}.", effort)
