"""The compiled replay loop: insertion, visibility, causality and budget live here, not in policies.

The loop is written once, as a plain function over the names ``observe`` and ``rate``. For each
pair of functions that a policy uses it is compiled with them bound to those names, so that they
inline: a call through a pointer would cost more than the arithmetic it wraps.
"""

import functools
import types

import numpy as np
from numba import float64, int64, njit, void

from h2o_theory.kernels import code_digest
from h2o_theory.policies.base import GROUP_REDUCTIONS
from h2o_theory.policies.choose import lowest

__all__ = ["compiled_advance", "compiled_loop", "visible_row"]

MEAN, MAX, FIRST = (GROUP_REDUCTIONS.index(name) for name in ("mean", "max", "first"))


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


@njit(cache=True, nogil=True, error_model="numpy")
def visible_row(rows, sink_share, b, position, n, raw, reduction, row, spare):
    """Row b of the group over the visible entries: renormalised unless raw, reduced to one.

    A sink without a key stays in a cache that dropped keys: ``sink_share`` [G, B] joins the mass.
    """
    group = rows.shape[0] if reduction != FIRST else 1
    for g in range(group):
        target = row if g == 0 else spare
        mass = gather(rows, g, b, position, n, target) + sink_share[g, b]
        scale = 1.0
        if not raw:
            scale = 1.0 / mass if mass > 0.0 else 0.0
        if reduction == MEAN:
            scale /= group
        if g == 0:
            if scale != 1.0:
                for i in range(n):
                    row[i] *= scale
        elif reduction == MAX:
            for i in range(n):
                row[i] = max(row[i], spare[i] * scale)
        else:
            for i in range(n):
                row[i] += spare[i] * scale


@njit(cache=True, nogil=True, error_model="numpy")
def move(source, target, position, score, per_slot):
    """Copy entry ``source`` with its state to slot ``target``."""
    if source != target:
        position[target] = position[source]
        score[target] = score[source]
        for i in range(per_slot.shape[1]):
            per_slot[target, i] = per_slot[source, i]


@njit(cache=True, nogil=True, error_model="numpy")
def welcome(t, n, window, features, position, score, per_slot):
    """Give the newcomer t its slot: score 0, its features, then zeros.

    In the ring it takes the place of the entry that leaves the window, which moves behind the n
    that are held.
    """
    slot = n
    if n >= window > 0:
        slot = t % window
        move(slot, n, position, score, per_slot)
    position[slot] = t
    score[slot] = 0.0
    for i in range(per_slot.shape[1]):
        per_slot[slot, i] = features[t, i] if i < features.shape[1] else 0.0


def advance(
    rows,
    sink_share,
    start,
    limits,
    features,
    position,
    score,
    per_slot,
    memory,
    table,
    settings,
    row,
    spare,
    out,
):
    """Replay rows ``start .. start + B``; the state arrays carry over from block to block.

    Slots ``0 .. window`` are a ring of the protected recent entries; behind it stand the sinks
    and then the candidates, in no order. So an arrival and an eviction move three entries at the
    most, whatever the budget.

    ``limits`` is (occupancy, budget, prefill, n_sink, n_recent, needs_rows, raw, reduction), and
    its first entry is updated. ``out[j]`` is the step at which j was evicted, T while it was not.
    """
    n, budget, prefill = limits[0], limits[1], limits[2]
    # The window of the next step holds n_recent entries, the next query's own included, so that
    # n_recent - 1 are protected when this step's victim is chosen.
    window = max(limits[4] - 1, 0)
    evictable_from = window + limits[3]
    for b in range(rows.shape[1]):
        t = start + b
        welcome(t, n, window, features, position, score, per_slot)
        n += 1
        if limits[5]:
            visible_row(rows, sink_share, b, position, n, limits[6], limits[7], row, spare)
        observe(t, n, position, row, score, per_slot, memory, settings)  # noqa: F821
        while n >= budget and t >= prefill - 1:
            rate(t, b, n, position, score, per_slot, memory, table, settings)  # noqa: F821
            victim = lowest(score, position, evictable_from, n)
            out[position[victim]] = t
            n -= 1
            move(n, victim, position, score, per_slot)
    limits[0] = n


_SIGNATURE = void(
    float64[:, :, ::1],
    float64[:, ::1],
    int64,
    int64[::1],
    float64[:, ::1],
    int64[::1],
    float64[::1],
    float64[:, ::1],
    float64[::1],
    float64[:, ::1],
    float64[::1],
    float64[::1],
    float64[::1],
    int64[::1],
)


def compiled_advance(policy):
    """:func:`advance` compiled for the functions of a policy."""
    return compiled_loop(advance, _SIGNATURE, *policy.kernels)


@functools.cache
def compiled_loop(loop, signature, observe, rate):
    """A loop with a policy's functions bound in: about a second the first time, then cached.

    The qualified name carries a digest of all code the loop is built from, see
    :mod:`h2o_theory.kernels`, wherever a policy was written: in a file, a notebook's cell or at the
    prompt.
    """
    functions = {"observe": observe, "rate": rate}
    bound = types.FunctionType(loop.__code__, {**loop.__globals__, **functions}, loop.__name__)
    bound.__module__ = loop.__module__
    digest = code_digest(loop, observe, rate)
    bound.__qualname__ = f"{loop.__name__}_{observe.__name__}_{rate.__name__}_{digest}"
    return njit(signature, cache=True, nogil=True, error_model="numpy")(bound)
