"""The compiled replay loop: insertion, visibility, causality and budget live here, not in policies.

The loop is written once, as a plain function over the names ``observe`` and ``rate``. For each
pair of functions that a policy uses it is compiled with them bound to those names, so that they
inline: a call through a pointer would cost more than the arithmetic it wraps.
"""

import functools
import types
import typing
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

import numpy as np
from numba import float64, int64, njit

from h2o_theory.kernels import code_digest
from h2o_theory.policies import CompiledPolicy
from h2o_theory.policies.base import GROUP_REDUCTIONS
from h2o_theory.policies.choose import lowest
from h2o_theory.policies.kernels import Cache, Matrix, Vector, numba_type

__all__ = [
    "Limits",
    "State",
    "compiled_advance",
    "compiled_loop",
    "form_row",
    "move",
    "welcome",
]

_MEAN, _MAX, _FIRST = (GROUP_REDUCTIONS.index(name) for name in ("mean", "max", "first"))


class RowKind(NamedTuple):
    """Which row ``observe`` is shown: none, the raw one, or one renormalised over the cache."""

    is_needed: bool
    is_raw: bool
    reduction: int


class Limits(NamedTuple):
    """What bounds a run.

    Attributes
    ----------
    budget, prefill, n_sink : int
    window : int
        Recent entries that are protected when a victim is chosen.
    row : RowKind
    """

    budget: int
    prefill: int
    n_sink: int
    window: int
    row: RowKind


class State(NamedTuple):
    """What a run carries from block to block, and two work rows.

    ``features`` [T, m] are copied to the newcomer's ``cache.entry`` as it arrives.
    """

    cache: Cache
    features: Matrix
    row: Vector
    spare: Vector


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "nsz"})
def gather(rows, g, b, position, n, out):
    """Copy the visible entries of a full row to ``out`` and return their sum.

    Unsigned indices spare the check for negative ones, and reassociation lets the sum use vector
    units: together twice as quick.
    """
    mass = 0.0
    for i in range(n):
        value = rows[g, b, np.uint64(position[i])]
        out[i] = value
        mass += value
    return mass


@njit(nogil=True, error_model="numpy")
def form_row(rows, sink_share, b, position, n, kind, row, spare):
    """Fill ``row`` with row b of the group over the visible entries, reduced to one.

    A sink without a key stays in a cache that dropped keys: its share joins the mass that a row is
    renormalised by.
    """
    group = rows.shape[0] if kind.reduction != _FIRST else 1
    for g in range(group):
        target = row if g == 0 else spare
        mass = gather(rows, g, b, position, n, target) + sink_share[g, b]
        scale = 1.0
        if not kind.is_raw:
            scale = 1.0 / mass if mass > 0.0 else 0.0
        if kind.reduction == _MEAN:
            scale /= group
        if g == 0:
            if scale != 1.0:
                for i in range(n):
                    row[i] *= scale
        elif kind.reduction == _MAX:
            for i in range(n):
                row[i] = max(row[i], spare[i] * scale)
        else:
            for i in range(n):
                row[i] += spare[i] * scale


@njit(nogil=True, error_model="numpy")
def move(source, target, cache):
    """Copy entry ``source`` with its state to slot ``target``."""
    if source != target:
        cache.position[target] = cache.position[source]
        cache.score[target] = cache.score[source]
        for i in range(cache.entry.shape[1]):
            cache.entry[target, i] = cache.entry[source, i]


@njit(nogil=True, error_model="numpy")
def welcome(t, n, window, features, cache):
    """Give the newcomer t its slot: score 0, its features, then zeros.

    In the ring it takes the place of the entry that leaves the window, which moves behind the n
    that are held.
    """
    slot = n
    if n >= window > 0:
        slot = t % window
        move(slot, n, cache)
    cache.position[slot] = t
    cache.score[slot] = 0.0
    for i in range(cache.entry.shape[1]):
        cache.entry[slot, i] = features[t, i] if i < features.shape[1] else 0.0


def advance(rows, sink_share, future, start, n, limits, state, settings, evicted_at):
    """Replay rows ``start .. start + B`` on the n entries held; returns how many are held after.

    Slots ``0 .. window`` are a ring of the protected recent entries; behind it stand the sinks
    and then the candidates, in no order. So an arrival and an eviction move three entries at the
    most, whatever the budget.

    ``rows`` [G, B, T] are those of the group, ``sink_share`` [G, B] is what a sink without a key
    takes of them, and ``future`` [B, T] holds rows of a clairvoyant policy's table (no columns for
    the others). ``evicted_at[j]`` is the step at which j was evicted, T while it was not.
    """
    # Arrays are taken out of the tuples once: each time would count a reference.
    cache, features, row, spare = state
    position, score = cache.position, cache.score
    window, evictable_from = limits.window, limits.window + limits.n_sink
    for b in range(rows.shape[1]):
        t = start + b
        welcome(t, n, window, features, cache)
        n += 1
        if limits.row.is_needed:
            form_row(rows, sink_share, b, position, n, limits.row, row, spare)
        observe(t, n, cache, row, settings)  # noqa: F821
        # A loop, because the one cut that ends a prefill takes out many entries at once. They are
        # rated anew after each: a rating may depend on who else is held.
        while n >= limits.budget and t >= limits.prefill - 1:
            rate(t, n, cache, future[b], settings)  # noqa: F821
            victim = lowest(score, position, evictable_from, n)
            evicted_at[position[victim]] = t
            n -= 1
            move(n, victim, cache)
    return n


def compiled_advance(policy: CompiledPolicy) -> Callable:
    """:func:`advance` compiled for the functions of a policy."""
    return compiled_loop(advance, Limits, int64[::1], policy)


def compiled_loop(loop: Callable, limits: type, evicted_at: object, policy: CompiledPolicy):
    """A loop over blocks with a policy's functions bound in, given the types of two arguments."""
    settings = typing.get_type_hints(type(policy).settings)["return"]
    state = [int, limits, State, settings, evicted_at]
    signature = int64(*map(numba_type, [*_BLOCK, *state]))
    return _compiled(loop, signature, settings, *policy.kernels)


_BLOCK = (float64[:, :, ::1], Matrix, Matrix, int)
"""Rows, sink shares, rows of the table, and the first row's number."""


@functools.cache
def _compiled(loop, signature, settings, observe, rate):
    """About a second the first time, then read from the disk.

    The qualified name, by which numba files what it compiled, carries a digest of all code the loop
    is built from, see :mod:`h2o_theory.kernels`, wherever a policy was written: in a file, a
    notebook's cell or at the prompt; and of the class of the settings, whose fields compiled code
    finds by their order. The functions that are inlined have no cache of their own.
    """
    functions = {"observe": observe, "rate": rate}
    bound = types.FunctionType(loop.__code__, {**loop.__globals__, **functions}, loop.__name__)
    bound.__module__ = loop.__module__
    described = f"{settings.__module__}.{settings.__qualname__} {settings._fields} {signature}"
    digest = code_digest(loop, observe, rate) + sha256(described.encode()).hexdigest()[:8]
    bound.__qualname__ = f"{loop.__name__}_{observe.__name__}_{rate.__name__}_{digest}"
    compiled = njit(signature, cache=True, nogil=True, error_model="numpy")(bound)
    # The overload itself: numba's dispatcher tells NamedTuples apart by the name of their class, so
    # that it would take one policy's Settings for another's.
    return compiled.get_overload(signature)
