"""Part D, the Hessian (D.47, D.48): conditions that are listed, and conditions that are needed."""

import math

import numpy as np
import torch

from paper_checks.finding import ASSUMING, CheckFinding, judge
from paper_checks.regression import Objective, hessian_middle

__all__ = ["bounded", "lemma_d47_1", "lemma_d47_2", "lemma_d48", "lemma_d48_u"]

L = 1.0
"""The l of the lemmas in the searches."""
BOUNDED = "|A| <= R, |x| <= R, b >= 0, |b|_1 <= 1, as in Theorem D.49"
RUNS = 400


def lemma_d47_1() -> CheckFinding:
    """w_i^2 >= 20 + l / sigma_min^2 implies Hessian >= l I: for which b?"""
    printed = _large_target()
    rng = np.random.default_rng(0)
    least = 0.0
    for _ in range(RUNS):
        n = int(rng.integers(2, 7))
        z = torch.as_tensor(rng.normal(size=n) * rng.choice([0.3, 1.0, 3.0]) - rng.choice([0, 5]))
        target = np.zeros(n)
        if rng.random() < 0.5:
            target[rng.integers(n)] = 1.0
        else:
            target = rng.dirichlet(np.ones(n)) * rng.random()
        objective = Objective(np.eye(n), target, np.zeros(n))
        least = min(least, float(torch.linalg.eigvalsh(hessian_middle(objective, z)).min()))
    remedied = None if least >= -20 else {"least eigenvalue of B": least}
    verdict, remedy_holds = judge(printed, remedied, remedied=ASSUMING)
    return CheckFinding(
        verdict,
        "B(x) depends on b linearly and without bound, so no fixed number makes up for every b. "
        "With b >= 0 and |b|_1 <= 1 (as in Theorem D.49) the least eigenvalue of B met was "
        f"{least:.3f}, far above the -20 that the lemma allows for.",
        "integers: A = (1, 0), x -3..3, b = (t, 0) or (0, t), l = 1, w_i^2 = 20 + l/sigma^2, "
        f"smallest t; {RUNS} random (Ax, b) with |b|_1 <= 1, n <= 6",
        {},
        printed,
        remedy_holds,
    )


def _large_target():
    """The smallest integer b, with A = (1, 0), at which the Hessian falls below l, or None."""
    weight = 20 + L
    for t in range(1, 500):
        for x in range(-3, 4):
            for target in ((t, 0), (0, t)):
                objective = Objective([[1.0], [0.0]], target, [math.sqrt(weight)] * 2)
                point = torch.tensor([float(x)], dtype=torch.float64)
                middle = hessian_middle(objective, point)
                value = float(middle[0, 0]) + weight
                if value < L:
                    f = objective.f(point).tolist()
                    return {
                        "A": [[1], [0]],
                        "x": x,
                        "b": list(target),
                        "l": L,
                        "w_i^2": weight,
                        "f": f,
                        "B[1,1] = u_1 + p''(2p - 1 - b_1 + b_2) + 2 p'^2": float(middle[0, 0]),
                        "with p = f_1, p' = p(1-p), p'' = p(1-p)(1-2p)": [
                            f[0],
                            f[0] * f[1],
                            f[0] * f[1] * (1 - 2 * f[0]),
                        ],
                        "Hessian": value,
                    }
    return None


def lemma_d47_2() -> CheckFinding:
    """w_i^2 >= 200 exp(R^2) + l/sigma_min^2 implies that W^2 is within 10 % of B + W^2."""
    printed = _large_point(1) or _large_point(10)
    rng = np.random.default_rng(1)
    worst, bad = 0.0, None
    for _ in range(RUNS):
        radius = float(rng.choice([0.1, 0.5, 1.0, 2.0, 3.0]))
        objective, x = bounded(rng, radius)
        n = len(objective.target)
        squares = 200 * math.exp(radius**2) * (1 + rng.random(n) * rng.choice([0, 5]))
        # W^2 <= 1.1 (B + W^2) and 0.9 (B + W^2) <= W^2, scaled by W on both sides.
        middle = hessian_middle(objective, x).numpy() / np.sqrt(np.outer(squares, squares))
        values = 1 + np.linalg.eigvalsh(middle)
        worst = max(worst, float(np.abs(values - 1).max()))
        if (values < 1 / 1.1).any() or (values > 1 / 0.9).any():
            bad = {"R": radius, "eigenvalues": values.tolist()}
    verdict, remedy_holds = judge(printed, bad, remedied=ASSUMING)
    return CheckFinding(
        verdict,
        "B contains diag(exp(Ax)), which is unbounded unless |A| and |x| are bounded. With "
        f"{BOUNDED}, B + W^2 differs from W^2 by at most {100 * worst:.2f} % (10 % is claimed).",
        f"integers: n = d = 1, A = 1, b = 0, l = 1, smallest x for R = 1 and R = 10; {RUNS} random "
        "(A, x, b) within the bounds, R = 0.1..3, |A| and |x| at the bound",
        {"the same for R = 10": _large_point(10)},
        printed,
        remedy_holds,
    )


def _large_point(radius):
    """The smallest integer x at which 0.9 (B + W^2) <= W^2 fails for A = 1, n = d = 1, b = 0."""
    square = 200 * math.exp(radius**2) + L
    for x in range(1, 200):
        if 0.9 * (math.exp(x) + square) > square:
            return {
                "A": 1,
                "b": 0,
                "x": x,
                "R": radius,
                "w^2 = 200 exp(R^2) + l": square,
                "B = exp(x), as f = 1 is constant": math.exp(x),
                "0.9 (B + w^2)": 0.9 * (math.exp(x) + square),
            }
    return None


def bounded(rng, radius, n=None, d=None):
    """A random objective and point with |A| = |x| = R, b >= 0, |b|_1 = 1."""
    n = n or int(rng.integers(1, 7))
    d = d or int(rng.integers(1, 4))
    matrix = rng.normal(size=(n, d))
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    matrix *= radius / values[0]
    if rng.random() < 0.5:
        x = right[0] * radius * rng.choice([-1, 1])
    else:
        x = rng.normal(size=d)
        x *= radius / np.linalg.norm(x)
    target = rng.dirichlet(np.ones(n) * rng.choice([0.1, 1.0]))
    return Objective(matrix, target, np.zeros(n)), torch.as_tensor(x)


def _changes(seed):
    """(R, n, |H(x)-H(y)|/|x-y|, |u(x)-u(y)|/|x-y|) at random pairs within the bounds."""
    rng = np.random.default_rng(seed)
    for _ in range(RUNS):
        radius = float(rng.choice([0.05, 0.2, 0.5, 1.0, 2.0]))
        objective, x = bounded(rng, radius)
        y = x * (1 - rng.choice([1e-4, 0.1, 1.0, 2.0]) * rng.random())
        gap = float(torch.linalg.vector_norm(x - y))
        change = hessian_middle(objective, x) - hessian_middle(objective, y)
        change = objective.matrix.T @ change @ objective.matrix
        shift = torch.linalg.vector_norm(objective.u(x) - objective.u(y))
        size = float(torch.linalg.matrix_norm(change, ord=2))
        yield radius, len(objective.target), size / gap, float(shift) / gap


def lemma_d48() -> CheckFinding:
    """|H(x) - H(y)| <= n^2 exp(40 R^2) |x - y|."""
    printed = None
    for x in range(1, 100):
        # n = d = 1, A = 1: f is constant, H(x) = exp(x) + w^2; R = 1.
        change = math.exp(x) - math.exp(x - 1)
        if change > math.exp(40):
            printed = {
                "A": 1,
                "b": 0,
                "x": x,
                "y": x - 1,
                "R": 1,
                "|H(x)-H(y)| = e^x - e^y": change,
                "n^2 exp(40 R^2) |x-y|": math.exp(40),
            }
            break
    worst = max(size / (n**2 * math.exp(40 * r**2)) for r, n, size, _ in _changes(2))
    remedied = None if worst <= 1 else {"largest ratio to the bound": worst}
    verdict, remedy_holds = judge(printed, remedied, remedied=ASSUMING)
    return CheckFinding(
        verdict,
        f"With {BOUNDED} (and |y| <= R) it holds with much room: the largest ratio of the two "
        f"sides was {worst:.1e}. No bound on A, x or b is part of the statement as listed, and "
        "without one it cannot hold.",
        f"integers n = d = 1, smallest x with y = x - 1; {RUNS} random pairs, R = 0.05..2, n <= 6",
        {},
        printed,
        remedy_holds,
    )


def lemma_d48_u() -> CheckFinding:
    """|u(x) - u(y)| <= 2 sqrt(n) R exp(R^2) |x - y|."""
    printed = None
    for x in range(1, 100):
        change = math.exp(x) - math.exp(x - 1)
        if change > 2 * math.e:
            printed = {
                "A": 1,
                "x": x,
                "y": x - 1,
                "R": 1,
                "|u(x)-u(y)| = e^x - e^y": change,
                "2 sqrt(n) R exp(R^2) |x-y|": 2 * math.e,
            }
            break
    bounds = ((2 * math.sqrt(n) * r * math.exp(r**2), shift) for r, n, _, shift in _changes(3))
    worst = max(shift / bound for bound, shift in bounds)
    remedied = None if worst <= 1 else {"largest ratio to the bound": worst}
    verdict, remedy_holds = judge(printed, remedied, remedied=ASSUMING)
    return CheckFinding(
        verdict,
        f"With |A|, |x|, |y| <= R it holds, even without 2 sqrt(n): the largest ratio of the two "
        f"sides was {worst:.3f}, and R exp(R^2) alone follows from the mean value theorem.",
        f"integers n = d = 1, smallest x with y = x - 1; {RUNS} random pairs, R = 0.05..2, n <= 6",
        {},
        printed,
        remedy_holds,
    )
