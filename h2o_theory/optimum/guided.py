"""The price-guided policy: from any prices to a schedule that a cache can follow."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from h2o_theory.annotations import IntArray

__all__ = ["guided_schedule"]


def guided_schedule(
    rows: NDArray[Any], budget: int, prefill: int, prices: NDArray[np.float32]
) -> tuple[IntArray, float]:
    """Evict, whenever the cache is full, the entry of smallest net future value at the prices.

    With ``w_i(j)`` the net value that key j can still earn from step i on
    (:mod:`h2o_theory.optimum.prices`)::

        u_t = argmin { w_{t+1}(j) : j in S_t },       the oldest among equals.

    At optimal prices a key of positive net value stays, one of none may leave; the rule decides
    the rest by value. Its schedule is feasible whatever the prices, hence a lower bound.

    Parameters
    ----------
    rows : numpy.ndarray [T, T] float32
    budget, prefill : int
    prices : numpy.ndarray [T - max(prefill, 1)] float32

    Returns
    -------
    evicted_at : numpy.ndarray [T] int64
    mass : float
        What the scored rows see of older keys, to the precision of the rows.

    Notes
    -----
    O(T^2 + T k) time. The w of all rows would fill a matrix; they are kept for every B-th row and
    recomputed block by block, which takes two passes over the rows and 8 T^1.5 bytes.
    """
    tokens = len(rows)
    first = max(prefill, 1)
    evicted_at = np.full(tokens, tokens, dtype=np.int64)
    block = int(np.ceil(np.sqrt(prices.size)))
    saved = _save_every(rows, first, prices, block)
    mass = _follow(rows, first, budget - 1, prices, block, saved, evicted_at)
    return evicted_at, mass


@njit(cache=True, nogil=True, error_model="numpy")
def _step_back(row, price, worth):
    """``w_i`` from ``w_{i+1}``, in place."""
    for j in range(row.size):
        worth[j] = max(row[j] - price + worth[j], np.float32(0))


@njit(cache=True, nogil=True, error_model="numpy")
def _save_every(rows, first, prices, block):
    """Net future values before steps 0, block, 2 block, ... and, all zero, after the last."""
    steps, keys = prices.size, rows.shape[0] - 1
    blocks = (steps + block - 1) // block
    saved = np.zeros((blocks + 1, keys), np.float32)
    worth = np.zeros(keys, np.float32)
    for i in range(steps - 1, -1, -1):
        older = first + i
        _step_back(rows[older, :older], prices[i], worth[:older])
        if i % block == 0:
            saved[i // block] = worth
    return saved


@njit(cache=True, nogil=True, error_model="numpy")
def _evict(cached, held, worth, keep, at, evicted_at):
    """Evict entries of least worth until ``keep`` are left; return how many are held."""
    while held > keep:
        victim = 0
        for s in range(1, held):
            less = worth[cached[s]] < worth[cached[victim]]
            if less or (worth[cached[s]] == worth[cached[victim]] and cached[s] < cached[victim]):
                victim = s
        evicted_at[cached[victim]] = at
        held -= 1
        cached[victim] = cached[held]
    return held


@njit(cache=True, nogil=True, error_model="numpy")
def _follow(rows, first, slots, prices, block, saved, evicted_at):
    """Run the cache forward; the net values of one block of steps at a time are at hand."""
    steps, keys = prices.size, rows.shape[0] - 1
    worth = np.zeros((block + 1, keys), np.float32)
    cached = np.empty(keys + 1, np.int64)
    cached[:first] = np.arange(first)
    held = first
    mass = 0.0
    for start in range(0, steps, block):
        end = min(start + block, steps)
        worth[end - start] = saved[start // block + 1]
        for i in range(end - 1, start - 1, -1):
            older = first + i
            worth[i - start] = worth[i - start + 1]
            _step_back(rows[older, :older], prices[i], worth[i - start, :older])
        for i in range(start, end):
            # Before row first + i is read: at most ``slots`` keys of the rows before.
            held = _evict(cached, held, worth[i - start], slots, first + i - 1, evicted_at)
            for s in range(held):
                mass += rows[first + i, cached[s]]
            cached[held] = first + i
            held += 1
    return mass
