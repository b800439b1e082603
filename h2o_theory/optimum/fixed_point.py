"""Attention in exact integers: the optimum is solved, checked and compared without rounding.

A row entry ``a`` becomes ``rint(a * 2**36)``. Successive shortest paths needs exact arithmetic:
in floating point a settled node can look improvable by one unit in the last place, and the
parent pointers then close a cycle.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from h2o_theory.annotations import IntArray
from h2o_theory.errors import BadArgument, InvalidAttention

__all__ = [
    "FRACTION_BITS",
    "UNITS",
    "TOTAL_LIMIT",
    "require_fixed_point",
    "require_rows",
    "row_in_units",
    "to_fixed_point",
]

FRACTION_BITS = 36
UNITS = 2.0**FRACTION_BITS
"""Units in a mass of 1: a mass times this is fixed point, fixed point over this is a mass."""
# Every number the solver forms is at most twice the sum of all entries in size, and settled nodes
# are marked with 2**62, which must stay out of reach: so the sum has to stay below 2**60.
TOTAL_LIMIT = 2**60


def to_fixed_point(mean_rows: ArrayLike) -> IntArray:
    """Round the rows of one kv_head to multiples of 2**-36.

    ``fixed[t, j] = rint(mean_rows[t, j] * 2**36)``. Every later step is exact for these integers;
    against the unrounded rows a retained mass summed over T rows is off by at most
    ``T * k * 2**-37`` (half a unit for each entry seen).

    Parameters
    ----------
    mean_rows : array_like [T, T]
        Non-negative attention, lower triangular: row t holds query t, column j key j. Rows
        need not sum to one.

    Returns
    -------
    numpy.ndarray [T, T] int64
        C-contiguous, zero above the diagonal.

    Raises
    ------
    BadArgument
        Not a square matrix of real numbers, or a total mass of ``2**24`` or more, beyond which
        the solver's int64 sums could overflow (rows that sum to one reach it at T = 2**24).
    InvalidAttention
        An entry is NaN, infinite, negative, or above the diagonal and not zero.

    Notes
    -----
    O(T^2) time; 8 T^2 bytes for the result and 8 T^2 while it is made.

    Examples
    --------
    >>> to_fixed_point([[1.0, 0.0], [0.25, 0.75]])[1] / 2**36
    array([0.25, 0.75])
    """
    rows = require_rows(mean_rows, "mean_rows").astype(np.float64, copy=False)
    return np.rint(rows * UNITS).astype(np.int64, order="C")


def require_rows(rows: ArrayLike, name: str) -> NDArray[np.floating]:
    """Rows as an array of float32, if they are, or float64; refuses what is no causal attention."""
    rows = np.asarray(rows)
    _require_square(rows, name, "iuf", "real numbers")
    if rows.dtype != np.float32:
        rows = rows.astype(np.float64, copy=False)
    if not np.isfinite(rows).all():
        t, j = np.argwhere(~np.isfinite(rows))[0]
        raise InvalidAttention(
            "attention must be finite", where=f"{name}[{t}, {j}]", got=rows[t, j]
        )
    _require_causal_mass(rows, name, 1.0)
    return rows


def row_in_units(rows: NDArray[Any], t: int) -> IntArray:
    """What row t gives to the keys ``0 .. t``, int64: fixed point as it is, other rows rounded."""
    row = rows[t, : t + 1]
    if row.dtype.kind == "i":
        return row
    return np.rint(row.astype(np.float64) * UNITS).astype(np.int64)


def require_fixed_point(fixed: ArrayLike) -> IntArray:
    """Return ``fixed`` as the C-contiguous int64 [T, T] the solver reads, or say what is wrong.

    Raises
    ------
    BadArgument
        Not a square int64 matrix, or a sum of entries of 2**60 or more.
    InvalidAttention
        An entry is negative, or above the diagonal and not zero.
    """
    fixed = np.asarray(fixed)
    _require_square(fixed, "fixed", "i", "int64, as to_fixed_point returns them")
    fixed = np.ascontiguousarray(fixed, dtype=np.int64)
    _require_causal_mass(fixed, "fixed", UNITS)
    return fixed


def _require_square(matrix: NDArray[Any], name: str, kinds: str, numbers: str) -> None:
    """Refuse anything but a [T, T] matrix, T >= 1, whose dtype kind is one of ``kinds``."""
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] >= 1
    if not square or matrix.dtype.kind not in kinds:
        raise BadArgument(
            f"{name} must be an attention matrix [T, T] with T >= 1 of {numbers}",
            got=f"shape {list(matrix.shape)} of {matrix.dtype}",
        )


def _require_causal_mass(matrix: NDArray[Any], name: str, unit: float) -> None:
    """Refuse negative entries, entries above the diagonal, and a total too large for int64.

    ``unit`` is the integer that stands for a mass of one. Nothing of size T^2 is allocated.
    """
    t = _first_faulty_row(matrix)
    if t < matrix.shape[0] and matrix[t].min() < 0:
        j = int(matrix[t].argmin())
        raise InvalidAttention(
            "attention must not be negative", where=f"{name}[{t}, {j}]", got=matrix[t, j]
        )
    if t < matrix.shape[0]:
        j = t + 1 + int(np.flatnonzero(matrix[t, t + 1 :])[0])
        raise InvalidAttention(
            "attention must be causal",
            where=f"{name}[{t}, {j}]",
            got=matrix[t, j],
            expected=f"0, as query {t} cannot see key {j}",
        )
    total = matrix.sum(dtype=np.float64) / unit
    if total >= TOTAL_LIMIT / UNITS:
        raise BadArgument(
            f"the total mass of {name} must be below 2**24, or int64 fixed point overflows",
            got=f"{total:.6g}",
            hint="Scale the rows down; rows that sum to one stay below it up to T = 2**24 - 1.",
        )


@njit(cache=True, nogil=True, error_model="numpy")
def _first_faulty_row(matrix):
    """Index of the first row with an entry below 0, or any above the diagonal; T if none."""
    for t in range(matrix.shape[0]):
        faulty = False
        for j in range(t + 1):
            faulty |= matrix[t, j] < 0
        for j in range(t + 1, matrix.shape[1]):
            faulty |= matrix[t, j] != 0
        if faulty:
            return t
    return matrix.shape[0]
