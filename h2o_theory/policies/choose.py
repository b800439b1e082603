"""The one place that decides who leaves."""

import numpy as np
from numba import njit

__all__ = ["lowest"]


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
    # Eight running minima, then a count of equals before the search for one: the first two passes
    # use vector units and the search needs no memory of what it met, four times quicker than one
    # loop that does both. Unsigned indices spare the check for negative ones.
    a = b = c = d = e = f = g = h = np.inf
    stop = first + (last - first) // 8 * 8
    for i in range(first, stop, 8):
        a = score[i] if score[i] < a else a
        b = score[i + 1] if score[i + 1] < b else b
        c = score[i + 2] if score[i + 2] < c else c
        d = score[i + 3] if score[i + 3] < d else d
        e = score[i + 4] if score[i + 4] < e else e
        f = score[i + 5] if score[i + 5] < f else f
        g = score[i + 6] if score[i + 6] < g else g
        h = score[i + 7] if score[i + 7] < h else h
    for i in range(stop, last):
        a = score[i] if score[i] < a else a
    best = min(min(min(a, b), min(c, d)), min(min(e, f), min(g, h)))
    candidates = score[first:last]
    equals = 0
    for i in range(candidates.size):
        equals += candidates[i] == best
    if equals == 0:
        return first + np.argmin(position[first:last])
    slot = np.uint64(first)
    while score[slot] != best:
        slot += np.uint64(1)
    found = np.int64(slot)
    while equals > 1:
        slot += np.uint64(1)
        if score[slot] == best:
            equals -= 1
            if position[slot] < position[found]:
                found = np.int64(slot)
    return found
