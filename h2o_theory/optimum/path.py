"""Successive shortest paths on the time line: the compiled inner loops of the exact optimum.

The network. Node i stands for the moment before scored row ``first + i`` is read; node N, the
sink, for the end. A unit of flow is one retained slot travelling from node 0 to the sink. It first
stays idle, earning nothing, up to some node. Then it carries tokens: at ``arrival[j]`` it may take
in token j, which no other unit has, and give it up at any later node q for another, earning
``V_j(q)``, the sum of the rows in between. Attention is never negative, so a slot once in use need
not fall idle again: it can keep the token it has. These arcs are intervals that start at a fixed
place for each token, a *network matrix* (a path with one pendant edge for each token, a
caterpillar tree), so integral flows are optimal among fractional ones.

The flow. All it has to remember is where each token ends, ``ends[j]`` (``arrival[j]`` when never
retained). Token j then contributes to the residual graph exactly the arcs ``ends[j] -> q`` for all
``q >= arrival[j]``, with gain ``V_j(q) - V_j(ends[j])``, beside the idle arcs ``0 -> q``, which
never fill. N+1 nodes are enough: none is needed for each token and step. (Idle arcs reversed lead
back to node 0, where the search starts; no shortest path has a use for them.)

One augmentation is a Dijkstra search for the path of largest gain. Potentials y are kept for
which the reduced cost ``y[q] - y[p] - gain`` of every residual arc is non-negative; where the last
search settled a node, y is the largest gain of a path to it. A token that offers a gain to a node
offers at least as much to every later one, so y is non-decreasing, and ``y[i+1] - y[i] >= 0`` is
the price of a slot during step i.
"""

from typing import NamedTuple

import numpy as np

from h2o_theory.annotations import IntArray
from h2o_theory.kernels import kernel
from h2o_theory.optimum.scan import CHUNK, SETTLED, holds, nearest_distance, relax

__all__ = ["Flow", "Network", "augment", "build_network", "empty_flow"]

_IDLE = -1
# Side of the squares in which a matrix is turned from rows into columns.
_TILE = 32


class Network(NamedTuple):
    """What does not change: prefix sums V_j packed in one array, V_j(q) = sums[offset[j] + q].

    Packing keeps half of a square and the rows of neighbouring tokens side by side, which is 1.4
    times quicker at T = 1024 than a square array: reading these sums is most of the work.
    """

    sums: np.ndarray
    offset: np.ndarray
    arrival: np.ndarray


class Flow(NamedTuple):
    """What an augmentation updates in place: ends [T-1] and the potential y [N+1]."""

    ends: np.ndarray
    potential: np.ndarray


def build_network(fixed: IntArray, first: int) -> Network:
    """Network of the scored rows ``first .. T-1``, at least one of them.

    Token j = 0..T-2 arrives at node ``max(j + 1 - first, 0)``. O(T^2) time; about 4 T^2 bytes.
    """
    tokens = fixed.shape[0]
    steps = tokens - first
    arrival = np.maximum(np.arange(1, tokens) - first, 0)
    starts = np.concatenate([[0], np.cumsum(steps + 1 - arrival)])
    sums = np.zeros(starts[-1], dtype=np.int64)
    offset = starts[:-1] - arrival
    _add_up(fixed, first, arrival, offset, sums)
    return Network(sums, offset, arrival)


def empty_flow(fixed: IntArray, first: int, network: Network) -> Flow:
    """No unit sent yet; prices that no token can pay: the whole mass of each row."""
    row_mass = fixed[first:].sum(axis=1) - fixed.diagonal()[first:]
    potential = np.concatenate([[0], np.cumsum(row_mass)])
    return Flow(network.arrival.copy(), potential)


@kernel(nogil=True, error_model="numpy")
def _add_up(fixed, first, arrival, offset, sums):
    """Fill the prefix sums tile by tile, so that reads and writes both run along cache lines.

    Four times quicker at T = 2048 than eight columns from top to bottom.
    """
    tokens, steps = arrival.size, fixed.shape[0] - first
    # A key's sums run down a column of the rows, its place in ``sums`` along a line: one of the
    # two would jump at every entry, were it not for tiles that fit in the cache.
    total = np.zeros(_TILE, np.int64)
    for left in range(0, tokens, _TILE):
        right = min(left + _TILE, tokens)
        total[:] = 0
        for top in range(arrival[left], steps, _TILE):
            bottom = min(top + _TILE, steps)
            for j in range(left, right):
                so_far = total[j - left]
                at = offset[j] + 1
                for i in range(max(top, arrival[j]), bottom):
                    so_far += fixed[first + i, j]
                    sums[at + i] = so_far
                total[j - left] = so_far


@kernel(nogil=True, error_model="numpy")
def _group_by_end(ends, nodes):
    """Counting sort: the tokens that end at node v are ``order[start[v]:start[v + 1]]``."""
    start = np.zeros(nodes + 1, np.int64)
    for j in range(ends.size):
        start[ends[j] + 1] += 1
    for v in range(nodes):
        start[v + 1] += start[v]
    free = start[:nodes].copy()
    order = np.empty(ends.size, np.int64)
    for j in range(ends.size):
        order[free[ends[j]]] = j
        free[ends[j]] += 1
    return start, order


@kernel(nogil=True, error_model="numpy")
def _search(network, flow, reach, parent):
    """Dijkstra until the sink is settled: ``reach[v]`` the largest gain to v, ``parent`` its arc.

    Idle arcs reach every node with gain 0, so there is no unreached node. All nodes at the nearest
    distance are settled in one sweep (ties are many: the arcs that the last search used have
    reduced cost 0). Nodes below ``lowest`` are settled and not looked at again. All in one
    function, because calling one for each node would add a third to the time.
    """
    sums, offset, arrival = network
    nodes = reach.size
    start, order = _group_by_end(flow.ends, nodes)
    pending = flow.potential.copy()
    reach[:] = 0
    parent[:] = _IDLE
    lowest = 0  # all nodes below it are settled
    while True:
        nearest = nearest_distance(pending[lowest:], reach[lowest:])
        for low in range(lowest, nodes, CHUNK):
            high = min(low + CHUNK, nodes)
            if not holds(pending[low:high], reach[low:high], nearest):
                continue
            for v in range(low, high):
                if pending[v] - reach[v] != nearest:
                    continue
                if v == nodes - 1:
                    return
                pending[v] = SETTLED
                while pending[lowest] == SETTLED:
                    lowest += 1
                for at in range(start[v], start[v + 1]):
                    j = order[at]
                    # Offers to settled nodes could only be worse than what they have.
                    q = max(arrival[j], lowest)
                    base = reach[v] - sums[offset[j] + v]
                    ahead = sums[offset[j] + q : offset[j] + nodes]
                    relax(ahead, base, j, reach[q:], parent[q:])


@kernel(nogil=True, error_model="numpy")
def _send(flow, parent):
    """Move one unit along the path that ``parent`` spells from the sink back to node 0."""
    # The token that enters v has ended at ``source`` until now. It hands over the slot it frees
    # there to the token before it on the path, down to the one that takes an idle slot.
    v = parent.size - 1
    while parent[v] != _IDLE:
        token = parent[v]
        source = flow.ends[token]
        flow.ends[token] = v
        v = source


@kernel(nogil=True, error_model="numpy")
def augment(network, flow, gains):
    """Send up to ``gains.size`` more units, each along a path of largest gain; return how many.

    Stops early when the best path gains nothing: then no further slot is worth anything, and all
    prices are zero. The potentials are left as a dual optimum for the flow reached. O(T^2) time
    for each unit.
    """
    nodes = flow.potential.size
    reach = np.empty(nodes, np.int64)
    parent = np.empty(nodes, np.int64)
    for unit in range(gains.size):
        _search(network, flow, reach, parent)
        gain = reach[nodes - 1]
        drop = flow.potential[nodes - 1] - gain
        # A settled node keeps its reach; the others are all farther than the sink.
        for v in range(nodes):
            flow.potential[v] = max(reach[v], flow.potential[v] - drop)
        # The potentials are lowered first: with a gain of 0 they become prices of zero, which
        # are the optimal ones when slots are to spare.
        if gain == 0:
            return unit
        _send(flow, parent)
        gains[unit] = gain
    return gains.size
