"""What the compiled rules see and share: the cache, its types, and kernels of more than one rule.

A kernel that calls a compiled function of another file is compiled with
:func:`h2o_theory.kernels.kernel`, whose cache notices changes over there.
"""

import typing
from typing import Any, NamedTuple, NewType

import numpy as np
from numba import boolean, float64, int64, njit, types

__all__ = [
    "Cache",
    "Matrix",
    "NoSettings",
    "Vector",
    "future_sums",
    "head_stream",
    "numba_type",
    "observe_nothing",
    "observe_ring",
    "observe_sum",
    "rate_by_future",
    "rate_nothing",
    "uniform_hash",
]

Vector = NewType("Vector", np.ndarray)
"""A contiguous float64 array [n] in a NamedTuple that compiled functions are handed."""

Matrix = NewType("Matrix", np.ndarray)
"""The same, [n, m]."""

Positions = NewType("Positions", np.ndarray)
"""The same, int64 [n]."""


class Cache(NamedTuple):
    """The entries that a policy holds, in no particular order; only the first n count.

    Attributes
    ----------
    position : int64 [slots]
        Entry i is token ``position[i]``.
    score : float64 [slots]
        The lowest leaves. It is 0 for a newcomer.
    entry : float64 [slots, m]
        What a policy keeps with each entry: its features, then as many zeros at first as its
        ``sizes`` ask for.
    memory : float64 [any]
        What it keeps for the head.
    """

    position: Positions
    score: Vector
    entry: Matrix
    memory: Vector


class NoSettings(NamedTuple):
    """The settings of a policy without any."""


_TYPES = {
    bool: boolean,
    int: int64,
    float: float64,
    Positions: int64[::1],
    Vector: float64[::1],
    Matrix: float64[:, ::1],
}


def numba_type(annotation: Any) -> types.Type:
    """The compiled type of an annotation: a number, an array above or a NamedTuple of those."""
    if annotation in _TYPES:
        return _TYPES[annotation]
    if isinstance(annotation, types.Type):
        return annotation
    fields = typing.get_type_hints(annotation)
    return types.NamedTuple([numba_type(fields[name]) for name in annotation._fields], annotation)


@njit(cache=True, nogil=True)
def observe_nothing(t, n, cache, row, settings):
    """No-op `observe` for policies that ignore attention."""


@njit(cache=True, nogil=True)
def rate_nothing(t, n, cache, future, settings):
    """No-op `rate` for policies whose score is up to date after the observation."""


@njit(cache=True, nogil=True)
def observe_sum(t, n, cache, row, settings):
    """Add the row to the accumulated scores."""
    for i in range(n):
        cache.score[i] += row[i]


@njit(cache=True, nogil=True)
def observe_ring(t, n, cache, row, settings):
    """Keep the last m rows, entry by entry."""
    place = t % cache.entry.shape[1]
    for i in range(n):
        cache.entry[i, place] = row[i]


@njit(cache=True, nogil=True)
def rate_by_future(t, n, cache, future, settings):
    """The score is what the policy's table says of each token at this step."""
    for i in range(n):
        cache.score[i] = future[cache.position[i]]


@njit(cache=True, nogil=True)
def uniform_hash(stream, t, j):
    """A number in [0, 1) that depends on nothing but its arguments (SplitMix64's finaliser).

    A counter-based draw needs no generator state, so a replay may be cut into blocks, resumed
    or reordered and still draw the same numbers.
    """
    z = np.uint64(stream) + np.uint64(t + 1) * np.uint64(0x9E3779B97F4A7C15)
    z ^= np.uint64(j + 1) * np.uint64(0xD1B54A32D192ED03)
    for _ in range(2):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return np.float64(z >> np.uint64(11)) / 9007199254740992.0


def head_stream(context: Any) -> float:
    """The random stream of (seed, layer, kv_head): 52 bits, exact as a float."""
    key = np.random.SeedSequence([context.seed, context.layer, context.kv_head])
    return float(key.generate_state(1, np.uint64)[0] >> np.uint64(12))


def future_sums(mean_rows: np.ndarray, w: int | None = None) -> np.ndarray:
    """``out[t, j]``: column j summed over the w rows after t, or over all rows after t."""
    after = np.zeros_like(mean_rows)
    after[:-1] = np.cumsum(mean_rows[:0:-1], axis=0)[::-1]
    if w is not None and w < len(after):
        after[:-w] -= after[w:].copy()
    return after
