"""Functions of the form ``sum_r c_r h(sum_{j in S} w[r, j])``: diminishing returns, row by row.

With one row they are modular, concave of modular, or budget-additive functions; with several, sums
over attention rows of a concave function of the retained mass, and all kinds of coverage.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from h2o_theory.annotations import FloatArray, IntArray
from h2o_theory.optimum.shapes import Shape, capped, linear
from h2o_theory.submodular.arguments import require_shape, require_weights
from h2o_theory.submodular.set_function import Properties, Selection, SetFunction

__all__ = ["RowSums", "budget_additive", "concave_of_modular", "modular", "row_sums"]

# Elements whose gains are computed at once: bounds the temporary to this many rows of weights.
_BLOCK = 256


class RowSums(SetFunction):
    """``f(S) = sum_r c_r h(m_r(S))``, ``m_r(S) = sum_{j in S} w[r, j]``.

    Monotone and submodular for w, c >= 0 and h concave and non-decreasing: a sum of concave
    functions of modular ones. Normalised where h(0) = 0, as for all shipped shapes. O(R) a gain,
    O(R |S|) a value, R rows.

    Made by the functions of this module and of :mod:`h2o_theory.submodular.coverage`.
    """

    def __init__(
        self,
        name: str,
        weights: FloatArray,
        shape: Shape,
        scales: FloatArray | None = None,
        *,
        modular: bool = False,
    ) -> None:
        rows, size = weights.shape
        normalised = float(shape.value(np.zeros(1))[0]) == 0.0
        super().__init__(name, size, Properties(normalised, True, True, modular))
        self.shape = shape
        self.scales = np.ones(rows) if scales is None else scales
        self.columns = np.ascontiguousarray(weights.T)

    def value(self, members: Iterable[int]) -> float:
        return self.worth(self.columns[list(members)].sum(axis=0))

    def select(self, members: Iterable[int] = ()) -> Selection:
        return _RowSelection(self, members)

    def worth(self, masses: FloatArray) -> Any:
        """f of a set with the given row masses [..., R]."""
        return self.shape.value(masses) @ self.scales


class _RowSelection(Selection):
    """Keeps the mass of each row."""

    def __init__(self, function: RowSums, members: Iterable[int] = ()) -> None:
        self._masses = np.zeros(len(function.scales))
        super().__init__(function, members)

    def gain(self, j: int) -> float:
        return self.function.worth(self._masses + self.function.columns[j]) - self.value

    def gains(self, candidates: ArrayLike) -> FloatArray:
        return self._changes(candidates, self._masses)

    def losses(self) -> FloatArray:
        return -self._changes(self.members, self._masses, sign=-1.0)

    def _changes(
        self, elements: Sequence[int] | IntArray, masses: FloatArray, sign: float = 1.0
    ) -> FloatArray:
        """f at ``masses`` with each element added or taken away, less the present value."""
        out = np.empty(len(elements))
        for start in range(0, len(elements), _BLOCK):
            columns = self.function.columns[elements[start : start + _BLOCK]]
            moved = masses + columns if sign > 0 else np.maximum(masses - columns, 0.0)
            out[start : start + _BLOCK] = self.function.worth(moved) - self.value
        return out

    def add(self, j: int) -> None:
        self.members.append(int(j))
        self._masses += self.function.columns[j]
        self.value = float(self.function.worth(self._masses))

    def drop(self, j: int) -> None:
        self.members.remove(j)
        self._masses = self.function.columns[self.members].sum(axis=0)
        self.value = float(self.function.worth(self._masses))


def modular(weights: ArrayLike) -> RowSums:
    """``f(S) = sum_{j in S} w_j``: what H2O's accumulated attention is.

    Parameters
    ----------
    weights : array_like [n]
        Finite, at least 0.

    Returns
    -------
    RowSums
        Normalised, monotone, modular.

    Raises
    ------
    BadArgument
        The weights are unusable.
    """
    weights = require_weights(weights, 1, "weights")
    return RowSums("modular", weights[None], linear(), modular=True)


def concave_of_modular(weights: ArrayLike, shape: Shape) -> RowSums:
    """``f(S) = h(sum_{j in S} w_j)``, h concave and non-decreasing.

    Parameters
    ----------
    weights : array_like [n]
        Finite, at least 0.
    shape : Shape
        h: :func:`h2o_theory.optimum.square_root`, ``log_saturation``, ``capped``, or your own.

    Returns
    -------
    RowSums
        Monotone, submodular; normalised where h(0) = 0. Greedy is exact, since h changes no
        comparison of sums.
    """
    weights = require_weights(weights, 1, "weights")
    return RowSums(f"{require_shape(shape).name} of modular", weights[None], shape)


def budget_additive(weights: ArrayLike, cap: float) -> RowSums:
    """``f(S) = min(B, sum_{j in S} w_j)`` (Definition D.2 of the H2O paper).

    Parameters
    ----------
    weights : array_like [n]
        Finite, at least 0.
    cap : float
        B > 0.

    Returns
    -------
    RowSums
        Normalised, monotone, submodular.
    """
    function = concave_of_modular(weights, capped(cap))
    function.name = "budget-additive"
    return function


def row_sums(rows: ArrayLike, shape: Shape) -> RowSums:
    """``f(S) = sum_t h(sum_{j in S} a[t, j])``: diminishing returns within each row.

    Parameters
    ----------
    rows : array_like [R, n]
        Attention rows over n keys, or any finite weights of at least 0.
    shape : Shape
        h, as for :func:`concave_of_modular`.

    Returns
    -------
    RowSums
        Monotone, submodular; normalised where h(0) = 0.

    Notes
    -----
    NP-hard to maximise already for h(m) = min(1, n m) and rows that sum to one, as it contains
    maximum coverage.

    Examples
    --------
    >>> from h2o_theory.optimum import square_root
    >>> float(row_sums([[0.25, 0.0], [0.25, 0.0]], square_root()).value([0]))
    1.0
    """
    rows = require_weights(rows, 2, "rows")
    return RowSums(f"sum over rows of {require_shape(shape).name}", rows, shape)
