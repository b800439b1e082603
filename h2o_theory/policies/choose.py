"""The one place that decides who leaves: the lowest score, the oldest among equals."""

import numpy as np
from numba import njit

__all__ = ["STRETCH", "least", "lowest"]

STRETCH = 32
"""Entries whose minimum is taken at once."""


@njit(cache=True, nogil=True, error_model="numpy")
def lowest(score, position, first, last):
    """Index of the lowest score in ``first .. last``, the oldest (lowest position) among equals.

    NaN is never lowest; if there is nothing else, the oldest entry of all is returned.

    Parameters
    ----------
    score : float64 [>= last]
    position : int64 [>= last]
        Positions of the entries, in any order.
    first, last : int
        ``first < last``; everything outside is protected.

    Returns
    -------
    int
    """
    # The minimum of each stretch tells where to look for the lowest and whether to look further:
    # a pass that uses vector units and a search of one stretch, where one loop that does it all
    # takes four times as long.
    best, begin, end = np.inf, first, first
    for start in range(first, last, STRETCH):
        stop = min(start + STRETCH, last)
        low = least(score, start, stop)
        if low < best:
            best, begin, end = low, start, stop
        elif low == best:
            end = stop
    found = -1
    for i in range(begin, end):
        if score[i] == best and (found < 0 or position[i] < position[found]):
            found = i
    return found if found >= 0 else first + np.argmin(position[first:last])


@njit(cache=True, nogil=True, error_model="numpy")
def least(score, start, stop):
    """The least score in ``start .. stop``; infinite if there is none but NaN."""
    # Eight running minima use vector units.
    part = score[start:stop]
    a = b = c = d = e = f = g = h = np.inf
    whole = part.size // 8 * 8
    for i in range(0, whole, 8):
        a = part[i] if part[i] < a else a
        b = part[i + 1] if part[i + 1] < b else b
        c = part[i + 2] if part[i + 2] < c else c
        d = part[i + 3] if part[i + 3] < d else d
        e = part[i + 4] if part[i + 4] < e else e
        f = part[i + 5] if part[i + 5] < f else f
        g = part[i + 6] if part[i + 6] < g else g
        h = part[i + 7] if part[i + 7] < h else h
    for i in range(whole, part.size):
        a = part[i] if part[i] < a else a
    return min(min(min(a, b), min(c, d)), min(min(e, f), min(g, h)))
