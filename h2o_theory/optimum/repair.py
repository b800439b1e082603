"""From near-optimal prices to the exact optimum of one budget, by local shortest paths.

The network is that of :mod:`h2o_theory.optimum.path`: a node before each step, one token per unit
of flow from its arrival to its end, and idle slots, which here run from a node to the next one.
Each token starts where staying pays most at the given prices, and idle slots fill the steps of
price zero. All residual arcs then have a non-negative reduced cost, but flow is not conserved: a
node at which one more slot comes in than goes out has an excess, the others a deficit. Each unit
of excess is sent to the nearest deficit by a Dijkstra search that stops there and raises the
potential of the nodes it settled. When no excess is left the flow is feasible, and optimal, as
no step ever made a reduced cost negative (Ahuja, Magnanti, Orlin, "Network Flows", 1993, sec. 9.7,
started from a pseudoflow).
"""

from typing import NamedTuple

import numpy as np

from h2o_theory.kernels import kernel
from h2o_theory.optimum.scan import CHUNK, SETTLED, holds, nearest_distance, relax

__all__ = ["Plan", "best_ends", "new_plan", "settle_excess"]

_NONE = -1
_IDLE = -1
_BACK = -2
# No node is that far, as all sums of entries stay below 2**60.
_FAR = np.int64(1) << 61


class Plan(NamedTuple):
    """A pseudoflow: ends [T-1], potential [N+1], idle [N] slots of each step, excess [N+1].

    ``first_at[v]`` is one token that ends at node v, ``after[j]`` and ``before[j]`` its
    neighbours in the list of those that do.
    """

    ends: np.ndarray
    potential: np.ndarray
    idle: np.ndarray
    excess: np.ndarray
    first_at: np.ndarray
    after: np.ndarray
    before: np.ndarray


class Search(NamedTuple):
    """Work space of one search.

    Node v is at distance ``pending[v] - reach[v]``: its potential less the best gain found to it.
    ``parent[v]`` is the token, or idle slot, that leads to it; ``settled`` and ``distance`` list
    the settled nodes in order.
    """

    reach: np.ndarray
    pending: np.ndarray
    parent: np.ndarray
    settled: np.ndarray
    distance: np.ndarray


@kernel(nogil=True, error_model="numpy")
def best_ends(network, potential, ends):
    """Let each token end where ``V_j(q) - (y_q - y_arrival)`` is largest, earliest among equals.

    Returns the sum of these surpluses: with ``slots * (y_N - y_0)`` the dual bound.
    """
    sums, offset, arrival = network
    nodes = potential.size
    total = 0
    for j in range(arrival.size):
        value = sums[offset[j] + arrival[j] : offset[j] + nodes]
        paid = potential[arrival[j] :]
        best = value[0] - paid[0]
        # Two passes, the maximum and then its place: a pass that keeps both has a branch, and
        # does not vectorise.
        for q in range(value.size):
            best = max(best, value[q] - paid[q])
        q = 0
        while value[q] - paid[q] != best:
            q += 1
        ends[j] = arrival[j] + q
        total += best + paid[0]
    return total


@kernel(nogil=True, error_model="numpy")
def new_plan(network, potential, slots):
    """Best ends at these potentials, idle slots where the price is zero, and what is left over."""
    arrival = network[2]
    nodes = potential.size
    ends = np.empty(arrival.size, np.int64)
    best_ends(network, potential, ends)
    idle, excess = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    first_at = np.full(nodes, _NONE)
    after, before = np.full(ends.size, _NONE), np.full(ends.size, _NONE)
    plan = Plan(ends, potential, idle, excess, first_at, after, before)
    change = np.zeros(nodes, np.int64)
    for j in range(ends.size):
        change[arrival[j]] += 1
        change[ends[j]] -= 1
        _insert(plan, j, ends[j])
    # Walk along the time line. What leaves a node are the tokens present and the idle slots of the
    # step after it. Idle slots cost the price of a step, so they keep a reduced cost of zero, and
    # with it optimality, only where the price is zero; elsewhere the imbalance is left over.
    occupied, incoming = 0, slots
    for v in range(nodes - 1):
        occupied += change[v]
        if potential[v + 1] == potential[v] and occupied < slots:
            idle[v] = slots - occupied
        excess[v] = incoming - occupied - idle[v]
        incoming = occupied + idle[v]
    excess[nodes - 1] = incoming - slots
    return plan


@kernel(nogil=True, error_model="numpy")
def _insert(plan, token, node):
    """Put a token at the head of the list of those that end at ``node``."""
    plan.ends[token] = node
    plan.before[token] = _NONE
    plan.after[token] = plan.first_at[node]
    if plan.after[token] != _NONE:
        plan.before[plan.after[token]] = token
    plan.first_at[node] = token


@kernel(nogil=True, error_model="numpy")
def _move(plan, token, node):
    """Let a token end at another node."""
    if plan.before[token] != _NONE:
        plan.after[plan.before[token]] = plan.after[token]
    else:
        plan.first_at[plan.ends[token]] = plan.after[token]
    if plan.after[token] != _NONE:
        plan.before[plan.after[token]] = plan.before[token]
    _insert(plan, token, node)


@kernel(nogil=True, error_model="numpy")
def _search(network, plan, source, search):
    """Dijkstra from a node with excess to the nearest with a deficit.

    Returns how many nodes were settled, and how many tokens were followed from them. As in
    :func:`h2o_theory.optimum.path.augment`, all nodes at the nearest distance are settled in one
    sweep, and all is in one function.
    """
    sums, offset, arrival = network
    reach, pending, parent, settled, distance = search
    nodes = reach.size
    reach[:] = -_FAR
    pending[:] = plan.potential
    reach[source] = pending[source]
    count, followed = 0, 0
    while True:
        nearest = nearest_distance(pending, reach)
        for low in range(0, nodes, CHUNK):
            high = min(low + CHUNK, nodes)
            if not holds(pending[low:high], reach[low:high], nearest):
                continue
            for v in range(low, high):
                if pending[v] - reach[v] != nearest:
                    continue
                settled[count] = v
                distance[count] = nearest
                if plan.excess[v] < 0:
                    return count, followed
                count += 1
                pending[v] = SETTLED
                # Any token that ends here could end at another node instead, earlier or later:
                # one residual arc for each, with the difference of its sums as gain.
                token = plan.first_at[v]
                while token != _NONE:
                    q = arrival[token]
                    base = reach[v] - sums[offset[token] + v]
                    ahead = sums[offset[token] + q : offset[token] + nodes]
                    relax(ahead, base, token, reach[q:], parent[q:])
                    token = plan.after[token]
                    followed += 1
                # One more idle slot through the next step earns nothing; one fewer in the step
                # before is possible only where one is idle.
                if v + 1 < nodes and reach[v] > reach[v + 1]:
                    reach[v + 1] = reach[v]
                    parent[v + 1] = _IDLE
                if v > 0 and plan.idle[v - 1] > 0 and reach[v] > reach[v - 1]:
                    reach[v - 1] = reach[v]
                    parent[v - 1] = _BACK


@kernel(nogil=True, error_model="numpy")
def _send(plan, source, node, parent):
    """Move one unit of excess from ``source`` to ``node`` along the path found."""
    plan.excess[source] -= 1
    plan.excess[node] += 1
    # Back along the arcs found. ``parent`` holds what moved, not the node before: that is where
    # the token ended until now, so it has to be read before the token moves.
    while node != source:
        token = parent[node]
        if token == _IDLE:
            plan.idle[node - 1] += 1
            node -= 1
        elif token == _BACK:
            plan.idle[node] -= 1
            node += 1
        else:
            end = plan.ends[token]
            _move(plan, token, node)
            node = end


@kernel(nogil=True, error_model="numpy")
def settle_excess(network, plan, limit):
    """Send every excess to a deficit; the plan is then an optimal flow.

    Gives up, and returns False, once nodes settled and tokens followed exceed ``limit``.
    """
    nodes = plan.potential.size
    space = np.empty((5, nodes), np.int64)
    search = Search(space[0], space[1], space[2], space[3], space[4])
    for source in range(nodes):
        while plan.excess[source] > 0:
            count, followed = _search(network, plan, source, search)
            # Raising the settled nodes by what they are nearer than the deficit makes the reduced
            # costs along the path zero and leaves no other one negative; unsettled nodes stay.
            farthest = search.distance[count]
            for i in range(count):
                plan.potential[search.settled[i]] += farthest - search.distance[i]
            _send(plan, source, search.settled[count], search.parent)
            limit -= count + followed
            if limit < 0:
                return False
    return True
