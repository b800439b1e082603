"""Packing intervals on a number of slots: the compiled loops of paging with refetch.

Gap i takes one slot between the rows ``starts[i]`` and ``ends[i]``. Node t of the flow is row t;
a unit of flow is a slot. It moves from a row to the next one, holding nothing, or along a gap,
which it earns. In the residual graph a gap that is held can be given back, and so can a slot that
holds nothing. Successive shortest paths as in :mod:`h2o_theory.optimum.path`, on these few arcs.
"""

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from h2o_theory.kernels import kernel
from h2o_theory.optimum.scan import CHUNK, SETTLED, holds, nearest_distance

__all__ = ["drop_last_ending", "pack"]

_IDLE = -1
_BACK = -2
_FAR = np.int64(1) << 61


@kernel(nogil=True, error_model="numpy")
def drop_last_ending(keys, starts, ends, rows, slots):
    """Whether each gap, given in order of its start, is held; the latest end goes first.

    The heap holds ``key - end * rows``: the latest end on top, the lowest key among equals. A key
    has one gap at a time; those that ended linger below, and are never on top while others are
    held.
    """
    kept = np.ones(ends.size, np.bool_)
    ending = np.zeros(rows + 1, np.int64)
    current = np.zeros(rows, np.int64)
    heap = [np.int64(0)]
    heap.pop()
    held, gap = 0, 0
    for t in range(rows):
        held -= ending[t]
        while gap < ends.size and starts[gap] == t:
            heappush(heap, keys[gap] - ends[gap] * rows)
            current[keys[gap]] = gap
            ending[ends[gap]] += 1
            held += 1
            gap += 1
        while held > slots:
            dropped = current[heappop(heap) % rows]
            kept[dropped] = False
            ending[ends[dropped]] -= 1
            held -= 1
    return kept


class Arcs(NamedTuple):
    """Gaps in order of start, and which of them are held, indexed from both sides.

    The gaps that start at node v are ``first_out[v] .. first_out[v + 1] - 1``. Those that end
    there are ``by_end[at]`` for ``at = first_in[v] .. first_in[v + 1] - 1``; ``kept_at[at]`` says
    whether that one is held, as ``kept`` does by gap, so that both scans run along memory.
    ``place[gap]`` is the gap's place in ``by_end``.
    """

    starts: np.ndarray
    ends: np.ndarray
    weights: np.ndarray
    first_out: np.ndarray
    first_in: np.ndarray
    by_end: np.ndarray
    place: np.ndarray
    kept: np.ndarray
    kept_at: np.ndarray


@kernel(nogil=True, error_model="numpy")
def _build_arcs(starts, ends, weights, rows):
    """Arcs of gaps that are given in order of start, none of them held."""
    n = ends.size
    first_out, first_in = np.zeros(rows + 1, np.int64), np.zeros(rows + 1, np.int64)
    for gap in range(n):
        first_out[starts[gap] + 1] += 1
        first_in[ends[gap] + 1] += 1
    for v in range(rows):
        first_out[v + 1] += first_out[v]
        first_in[v + 1] += first_in[v]
    free = first_in[:rows].copy()
    by_end, place = np.empty(n, np.int64), np.empty(n, np.int64)
    for gap in range(n):
        place[gap] = free[ends[gap]]
        by_end[place[gap]] = gap
        free[ends[gap]] += 1
    kept, kept_at = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    return Arcs(starts, ends, weights, first_out, first_in, by_end, place, kept, kept_at)


@kernel(nogil=True, error_model="numpy")
def _first_potentials(arcs, rows):
    """Largest gain of a path from the first row to each, when nothing is held yet."""
    potential = np.zeros(rows, np.int64)
    for v in range(rows):
        if v > 0:
            potential[v] = max(potential[v], potential[v - 1])
        for gap in range(arcs.first_out[v], arcs.first_out[v + 1]):
            end = arcs.ends[gap]
            potential[end] = max(potential[end], potential[v] + arcs.weights[gap])
    return potential


@kernel(nogil=True, error_model="numpy")
def _offer(gain, target, arc, reach, parent):
    """Offer a node a gain."""
    if gain > reach[target]:
        reach[target] = gain
        parent[target] = arc


@kernel(nogil=True, error_model="numpy")
def _offer_all(arcs, idle, v, reach, parent):
    """Follow the residual arcs of a node: to hold a gap, to give one back, to hold nothing."""
    gain = reach[v]
    for gap in range(arcs.first_out[v], arcs.first_out[v + 1]):
        if not arcs.kept[gap]:
            _offer(gain + arcs.weights[gap], arcs.ends[gap], gap, reach, parent)
    for at in range(arcs.first_in[v], arcs.first_in[v + 1]):
        if arcs.kept_at[at]:
            gap = arcs.by_end[at]
            _offer(gain - arcs.weights[gap], arcs.starts[gap], gap, reach, parent)
    _offer(gain, v + 1, _IDLE, reach, parent)
    if v > 0 and idle[v - 1] > 0:
        _offer(gain, v - 1, _BACK, reach, parent)


@kernel(nogil=True, error_model="numpy")
def _search(arcs, idle, potential, pending, reach, parent):
    """Dijkstra from the first row to the last: ``reach`` is the largest gain, ``parent`` the arc.

    All nodes at the nearest distance are settled in one sweep.
    """
    nodes = potential.size
    reach[:] = -_FAR
    reach[0] = 0
    pending[:] = potential
    while True:
        nearest = nearest_distance(pending, reach)
        for low in range(0, nodes, CHUNK):
            high = min(low + CHUNK, nodes)
            if not holds(pending[low:high], reach[low:high], nearest):
                continue
            for v in range(low, high):
                if pending[v] - reach[v] == nearest:
                    if v == nodes - 1:
                        return
                    pending[v] = SETTLED
                    _offer_all(arcs, idle, v, reach, parent)


@kernel(nogil=True, error_model="numpy")
def _send(arcs, idle, parent):
    """Move one slot along the path that ``parent`` spells from the last row back to the first."""
    v = parent.size - 1
    while v != 0:
        arc = parent[v]
        if arc == _IDLE:
            idle[v - 1] += 1
            v -= 1
        elif arc == _BACK:
            idle[v] -= 1
            v += 1
        else:
            v = arcs.ends[arc] if arcs.kept[arc] else arcs.starts[arc]
            arcs.kept[arc] = not arcs.kept[arc]
            arcs.kept_at[arcs.place[arc]] = arcs.kept[arc]


@kernel(nogil=True, error_model="numpy")
def pack(starts, ends, weights, rows, slots):
    """Which gaps are held in an optimal packing, and prices int64 [rows - 1] that prove it."""
    arcs = _build_arcs(starts, ends, weights, rows)
    potential = _first_potentials(arcs, rows)
    idle, parent = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    pending, reach = np.empty(rows, np.int64), np.empty(rows, np.int64)
    for _ in range(slots):
        _search(arcs, idle, potential, pending, reach, parent)
        gain = reach[rows - 1]
        drop = potential[rows - 1] - gain
        # A settled node keeps its reach; the others are all farther than the last row.
        for v in range(rows):
            potential[v] = max(reach[v], potential[v] - drop)
        if gain == 0:
            break
        _send(arcs, idle, parent)
    return arcs.kept, np.diff(potential)
