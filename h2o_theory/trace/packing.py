"""Packed attention rows: the lower triangle, row t with its t + 1 entries, rows one by one."""

import numpy as np

__all__ = ["pack_rows", "packed_range", "unpack_rows"]


def packed_range(start, stop):
    """Offsets of rows ``start .. stop`` in a packed lower triangle."""
    return start * (start + 1) // 2, stop * (stop + 1) // 2


def pack_rows(rows, start):
    """Rows [H, n, T], the first of which is row ``start``, as [H, entries]; dtype kept."""
    causal = np.arange(rows.shape[2]) <= start + np.arange(rows.shape[1])[:, None]
    return rows[:, causal]


def unpack_rows(packed, start, stop, tokens):
    """The inverse of :func:`pack_rows`: float64 rows [H, stop - start, T]."""
    rows = np.zeros((packed.shape[0], stop - start, tokens))
    causal = np.arange(tokens) <= np.arange(start, stop)[:, None]
    rows[:, causal] = packed
    return rows
