"""Attention rows as a trace stores them: packed, unpacked, and checked."""

import numpy as np

from h2o_theory.annotations import FloatArray
from h2o_theory.errors import InvalidAttention

__all__ = [
    "ROW_SUM_TOLERANCE",
    "largest_row_error",
    "pack_rows",
    "packed_range",
    "row_sum_error",
    "unpack_rows",
]


def packed_range(start: int, stop: int) -> tuple[int, int]:
    """Offsets of rows ``start .. stop`` in a packed lower triangle."""
    return start * (start + 1) // 2, stop * (stop + 1) // 2


def pack_rows(rows: np.ndarray, start: int) -> np.ndarray:
    """Rows [H, n, T], the first of which is row ``start``, as [H, entries]; dtype kept."""
    causal = np.arange(rows.shape[2]) <= start + np.arange(rows.shape[1])[:, None]
    return rows[:, causal]


def unpack_rows(packed: np.ndarray, start: int, stop: int, tokens: int) -> FloatArray:
    """The inverse of :func:`pack_rows`: float64 rows [H, stop - start, T]."""
    rows = np.zeros((packed.shape[0], stop - start, tokens))
    causal = np.arange(tokens) <= np.arange(start, stop)[:, None]
    rows[:, causal] = packed
    return rows


ROW_SUM_TOLERANCE = {"float64": 1e-6, "float32": 1e-4, "float16": 5e-3, "bfloat16": 2e-2}
"""How far the sum of a stored row may be from one, by dtype: rounding, not more.

A row that was rounded once is off by at most half a unit in the last place of its entries, which
is 5e-4 in float16 and 4e-3 in bfloat16, and in float16 by T times 3e-8 more for entries that
vanish. The rest is for engines that add and divide in the dtype itself.
"""


def row_sum_error(sums: FloatArray, sinks: bool = False) -> FloatArray:
    """Distance of row sums from one; with attention sinks only what exceeds one is an error."""
    return np.maximum(sums - 1, 0) if sinks else np.abs(sums - 1)


def largest_row_error(
    rows: np.ndarray, start: int, *, layer: int, dtype: str, sinks: bool = False
) -> float:
    """Refuse attention rows that are not causal probabilities.

    Parameters
    ----------
    rows : float array [H, n, T]
        Rows ``start .. start + n`` of every query head.
    start : int
    layer : int
        For the message.
    dtype : str
        The dtype they were stored in; a key of :data:`ROW_SUM_TOLERANCE`.
    sinks : bool
        Whether rows may sum to less than one.

    Returns
    -------
    float
        The largest distance of a row's sum from one.

    Raises
    ------
    InvalidAttention
        Names the fault and the first offending layer, head, row and key.
    """

    def refuse(bad, numbers, what, expected):
        if not bad.any():
            return
        index = np.argwhere(bad)[0]
        names = ("head", "row", "key")[: len(index)]
        places = (index[0], start + index[1], *index[2:])
        place = ", ".join(f"{name} {i}" for name, i in zip(names, places, strict=True))
        raise InvalidAttention(
            what,
            where=f"layer {layer}, {place}",
            got=f"{numbers[tuple(index)]:g}",
            expected=expected,
        )

    tolerance = ROW_SUM_TOLERANCE[dtype]
    future = np.arange(rows.shape[2]) > start + np.arange(rows.shape[1])[:, None]
    refuse(~np.isfinite(rows), rows, "NaN or infinite attention", "finite numbers")
    refuse(rows < 0, rows, "negative attention", "probabilities, after the softmax")
    refuse((rows != 0) & future, rows, "attention to the future", "zeros above the diagonal")
    sums = rows.sum(axis=-1, dtype=np.float64)
    error = row_sum_error(sums, sinks)
    refuse(
        error > tolerance,
        sums,
        "a row sums to more than one" if sinks else "a row does not sum to one",
        f"{'at most 1' if sinks else '1'} within {tolerance:g} for {dtype}",
    )
    return float(error.max(initial=0.0))
