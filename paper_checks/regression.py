"""The objective of sections D.16 to D.22 in float64 PyTorch, its Hessian, and integer instances."""

import itertools

import numpy as np
import torch

__all__ = ["Objective", "hessian_middle", "random_objective", "small_instances"]


class Objective:
    r"""L = L_exp + L_reg + L_sparse with u = exp(Ax), alpha = <u, 1>, f = u / alpha, c = f - b.

    .. math:: L_{exp} = \tfrac12 |c|^2, \quad L_{reg} = \tfrac12 |\mathrm{diag}(w) A x|^2, \quad
              L_{sparse} = |\exp(Ax)|_1
    """

    def __init__(self, matrix, target, weights):
        self.matrix = torch.as_tensor(np.asarray(matrix, dtype=np.float64))
        self.target = torch.as_tensor(np.asarray(target, dtype=np.float64))
        self.weights = torch.as_tensor(np.asarray(weights, dtype=np.float64))

    def u(self, x):
        """exp(Ax), [n]."""
        return torch.exp(self.matrix @ x)

    def alpha(self, x):
        """<u, 1>."""
        return self.u(x).sum()

    def f(self, x):
        """u / alpha, [n]."""
        return torch.softmax(self.matrix @ x, dim=0)

    def l_exp(self, x):
        """0.5 |f - b|^2."""
        return 0.5 * ((self.f(x) - self.target) ** 2).sum()

    def l_reg(self, x):
        """0.5 |diag(w) A x|^2."""
        return 0.5 * ((self.weights * (self.matrix @ x)) ** 2).sum()

    def l_sparse(self, x):
        """|exp(Ax)|_1."""
        return torch.linalg.vector_norm(self.u(x), ord=1)

    def loss(self, x):
        """L."""
        return self.l_exp(x) + self.l_reg(x) + self.l_sparse(x)

    def gradient(self, x):
        """Exact gradient of L, in closed form (checked against autograd)."""
        f, u, c = self.f(x), self.u(x), self.f(x) - self.target
        inner = f * c - f * (c @ f) + u + self.weights**2 * (self.matrix @ x)
        return self.matrix.T @ inner


def hessian_middle(objective, x):
    """B(x) with Hessian of L_exp + L_sparse = A^T B(x) A, [n, n] by autograd in z = Ax."""

    def outer(z):
        f = torch.softmax(z, dim=0)
        return 0.5 * ((f - objective.target) ** 2).sum() + torch.exp(z).sum()

    return torch.autograd.functional.hessian(outer, objective.matrix @ x)


def random_objective(rng, n, d, *, scale=1.0, target_norm=1.0, weight=0.0):
    """A random objective and point; b >= 0 with |b|_1 = target_norm."""
    matrix = rng.normal(size=(n, d)) * scale
    target = rng.exponential(size=n)
    target *= target_norm / target.sum()
    weights = np.full(n, weight) + rng.random(n)
    return Objective(matrix, target, weights), torch.as_tensor(rng.normal(size=d))


def small_instances(n, d, entries, targets):
    """Integer (A, b, x) in order of size: all A with the given entries, b from ``targets``."""
    every = itertools.product(
        itertools.product(entries, repeat=n * d),
        itertools.product(targets, repeat=n),
        itertools.product(entries, repeat=d),
    )
    for matrix, target, x in sorted(every, key=lambda m: sum(map(abs, (*m[0], *m[1], *m[2])))):
        shaped = np.array(matrix, dtype=float).reshape(n, d)
        yield shaped, np.array(target, dtype=float), np.array(x, dtype=float)
