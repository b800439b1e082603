"""Log-determinant: the volume that the chosen elements span, in units of a noise level."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from h2o_theory.annotations import FloatArray
from h2o_theory.errors import BadArgument
from h2o_theory.submodular.set_function import Properties, Selection, SetFunction

__all__ = ["LogDet", "log_det"]

# A variance is at least 1, but computed as a difference of numbers up to 1 + K / noise: beyond
# this ratio, rounding would reach more than a millionth of it.
_MOST_RATIO = 1e10
# Eigenvalues down to minus this share of the largest count as rounding of zero.
_ROUNDING = 1e-9


class LogDet(SetFunction):
    """``f(S) = log det(I + K_S / noise)``: information of noisy observations at S about all.

    Normalised, monotone, submodular for K positive semidefinite. O(n |S|) for all gains together.
    """

    def __init__(self, kernel: FloatArray, noise: float) -> None:
        super().__init__("log-determinant", len(kernel), Properties(True, True, True))
        self.matrix = np.eye(len(kernel)) + kernel / noise

    def value(self, members: Iterable[int]) -> float:
        chosen = list(members)
        return float(np.linalg.slogdet(self.matrix[np.ix_(chosen, chosen)])[1])

    def select(self, members: Iterable[int] = ()) -> Selection:
        return _VolumeSelection(self, members)


class _VolumeSelection(Selection):
    """Keeps each element's variance given the members: gain = log of it (Chen et al. 2018)."""

    def __init__(self, function: LogDet, members: Iterable[int] = ()) -> None:
        self._forget(function)
        super().__init__(function, members)

    def _forget(self, function: LogDet) -> None:
        self._variance = function.matrix.diagonal().copy()
        self._factors = np.zeros((0, function.size))

    def gain(self, j: int) -> float:
        return float(np.log(self._variance[j]))

    def gains(self, candidates: ArrayLike) -> FloatArray:
        return np.log(self._variance[candidates])

    def losses(self) -> FloatArray:
        chosen = self.function.matrix[np.ix_(self.members, self.members)]
        return -np.log(np.linalg.inv(chosen).diagonal())

    def add(self, j: int) -> None:
        row = self.function.matrix[j] - self._factors[:, j] @ self._factors
        factor = row / np.sqrt(self._variance[j])
        self.value += float(np.log(self._variance[j]))
        self.members.append(int(j))
        self._factors = np.vstack([self._factors, factor])
        # I + K has no variance below 1, given anything; what falls below is rounding.
        self._variance = np.maximum(self._variance - factor**2, 1.0)

    def drop(self, j: int) -> None:
        rest = [u for u in self.members if u != j]
        self._forget(self.function)
        self.members, self.value = [], 0.0
        for u in rest:
            self.add(u)


def log_det(kernel: ArrayLike, noise: float = 1.0) -> LogDet:
    """``f(S) = log det(I + K_S / noise)``: prefers elements that differ from those chosen.

    Parameters
    ----------
    kernel : array_like [n, n]
        K, symmetric positive semidefinite, for example keys times their transpose.
    noise : float
        Above 0.

    Returns
    -------
    LogDet

    Raises
    ------
    BadArgument
        ``kernel`` is no such matrix, or ``noise`` not positive or too small for float64.

    Notes
    -----
    The identity makes it monotone; log det of K_S alone is submodular but falls below 0.
    """
    kernel = np.asarray(kernel, dtype=np.float64)
    square = kernel.ndim == 2 and kernel.shape[0] == kernel.shape[1] >= 1
    if not square or not np.isfinite(kernel).all() or not np.allclose(kernel, kernel.T):
        raise BadArgument(
            "kernel must be a finite symmetric matrix [n, n]", got=f"shape {list(kernel.shape)}"
        )
    eigenvalues = np.linalg.eigvalsh(kernel)
    if eigenvalues[0] < -_ROUNDING * max(eigenvalues[-1], 1.0):
        raise BadArgument(
            "kernel must be positive semidefinite", got=f"an eigenvalue of {eigenvalues[0]:.3g}"
        )
    if not 0 < noise < np.inf:
        raise BadArgument("noise must be above 0 and finite", got=noise)
    largest = max(float(eigenvalues[-1]), 0.0)
    if largest > _MOST_RATIO * noise:
        raise BadArgument(
            f"noise must be at least {largest / _MOST_RATIO:.3g}, the largest eigenvalue of kernel "
            f"over {_MOST_RATIO:.0e}: below it, float64 tells no duplicates apart",
            got=noise,
        )
    return LogDet((kernel + kernel.T) / 2, noise)
