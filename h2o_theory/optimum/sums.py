"""Both sides of a certificate in integers, row by row, for rows that are floats or fixed point.

Nothing of size T^2 is allocated: a float32 trace of 8192 tokens stays at its 268 MB.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from h2o_theory.annotations import IntArray
from h2o_theory.optimum.fixed_point import (
    UNITS,
    require_fixed_point,
    require_rows,
    row_in_units,
)

__all__ = ["own_mass", "retained", "row_masses", "single_precision", "surplus", "usable"]


def usable(rows: ArrayLike, name: str) -> NDArray[Any]:
    """Fixed point, or float rows, C-contiguous; refuses anything else."""
    rows = np.asarray(rows)
    if rows.dtype.kind == "i":
        return require_fixed_point(rows)
    return np.ascontiguousarray(require_rows(rows, name))


def single_precision(rows: NDArray[Any], out: NDArray[np.float32]) -> None:
    """Write rows in units of mass to float32 ``out`` [T, T], up to the diagonal."""
    scale = 1 / UNITS if rows.dtype.kind == "i" else 1.0
    for t in range(len(rows)):
        out[t, : t + 1] = rows[t, : t + 1] * scale


def own_mass(rows: NDArray[Any], prefill: int) -> int:
    """What the scored rows give to their own entry."""
    return sum(int(row_in_units(rows, t)[t]) for t in range(prefill, len(rows)))


def row_masses(rows: NDArray[Any], first: int) -> IntArray:
    """int64 [T - first]: what each row from ``first`` on gives to older keys."""
    masses = [row_in_units(rows, t)[:t].sum() for t in range(first, len(rows))]
    return np.array(masses, dtype=np.int64)


def surplus(rows: NDArray[Any], first: int, prices: IntArray) -> int:
    """Sum over keys of the best net value of staying, when slots cost ``prices`` int64 [N]."""
    worth = np.zeros(len(rows), dtype=np.int64)
    for i in range(prices.size - 1, -1, -1):
        older = first + i
        value = row_in_units(rows, older)[:older] - prices[i] + worth[:older]
        worth[:older] = np.maximum(value, 0)
    return sum(worth.tolist())


def retained(rows: NDArray[Any], prefill: int, evicted_at: IntArray) -> int:
    """Retained mass of a schedule over the scored rows."""
    total = 0
    for t in range(prefill, len(rows)):
        total += int(row_in_units(rows, t)[evicted_at[: t + 1] >= t].sum())
    return total
