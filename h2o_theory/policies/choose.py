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
    # Eight running minima use vector units; unsigned indices spare the check for negative ones.
    a = b = c = d = e = f = g = h = np.inf
    whole = start + (stop - start) // 8 * 8
    for j in range(start, whole, 8):
        i = np.uint64(j)
        one = np.uint64(1)
        a = score[i] if score[i] < a else a
        i += one
        b = score[i] if score[i] < b else b
        i += one
        c = score[i] if score[i] < c else c
        i += one
        d = score[i] if score[i] < d else d
        i += one
        e = score[i] if score[i] < e else e
        i += one
        f = score[i] if score[i] < f else f
        i += one
        g = score[i] if score[i] < g else g
        i += one
        h = score[i] if score[i] < h else h
    for i in range(whole, stop):
        a = score[i] if score[i] < a else a
    return min(min(min(a, b), min(c, d)), min(min(e, f), min(g, h)))
