"""Independent opinions on the offline optimum, written from the replay step, not from the solver.

Every function takes the budget k as the package does: the query's own entry is counted.
"""

from functools import cache
from itertools import combinations

import networkx as nx
import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array


def softmax_rows(tokens, seed):
    """Rows [T, T] of a made-up head: noise, a sink, recency and tokens of lasting importance."""
    rng = np.random.default_rng(seed)
    lag = np.subtract.outer(np.arange(tokens), np.arange(tokens))
    logits = rng.normal(size=(tokens, tokens)) + 1.2 * rng.normal(size=tokens)
    logits -= 0.8 * np.log1p(np.maximum(lag, 0))
    logits[:, 0] += 3.0
    logits[lag < 0] = -np.inf
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def tied_rows(tokens, seed, levels=(0, 0, 1, 2)):
    """Rows of few dyadic values, many of them zero: ties everywhere."""
    rng = np.random.default_rng(seed)
    return np.tril(rng.choice(levels, size=(tokens, tokens))) / 4.0


def brute_force(fixed, budget, prefill):
    """Best total over every choice of every retained set, by exhaustion. T <= 8."""
    tokens = len(fixed)

    def choices(visible):
        for size in range(min(budget - 1, len(visible)) + 1):
            yield from map(frozenset, combinations(sorted(visible), size))

    @cache
    def best_from(t, retained):
        if t == tokens:
            return 0
        visible = retained | {t}
        seen = sum(int(fixed[t, j]) for j in visible)
        return seen + max(best_from(t + 1, kept) for kept in choices(visible))

    return max(best_from(prefill, kept) for kept in choices(frozenset(range(prefill))))


def highs_optimum(rows, budget, prefill=0):
    """HiGHS on the linear programme with x[t, j] = 1 when row t sees the older key j."""
    tokens = len(rows)
    first = max(prefill, 1)
    t, j = np.nonzero(np.tril(np.ones((tokens, tokens)), -1))
    t, j = t[t >= first], j[t >= first]
    number = np.full((tokens, tokens), -1)
    number[t, j] = np.arange(t.size)
    # At most k - 1 older keys in each row; and none that the row before did not have.
    again = np.flatnonzero((t > first) & (j < t - 1))
    row = np.concatenate([t - first, np.tile(tokens - first + np.arange(again.size), 2)])
    column = np.concatenate([np.arange(t.size), again, number[t[again] - 1, j[again]]])
    sign = np.concatenate([np.ones(t.size + again.size), -np.ones(again.size)])
    limit = np.concatenate([np.full(tokens - first, budget - 1), np.zeros(again.size)])
    matrix = coo_array((sign, (row, column)), shape=(limit.size, t.size)).tocsr()
    result = linprog(-rows[t, j], A_ub=matrix, b_ub=limit, bounds=(0, 1), method="highs")
    assert result.status == 0, result.message
    return rows.diagonal()[prefill:].sum() - result.fun


def chain_flow_optimum(fixed, budget, prefill=0):
    """Network simplex on the long form of the flow: one node for each key and row.

    k - 1 slots travel along "pool" nodes. A slot may enter the chain of a key at the row the key
    is first older than, is paid at each row, and may leave for the pool after any of them.
    """
    tokens = len(fixed)
    first = max(prefill, 1)
    graph = nx.DiGraph()
    graph.add_node(("pool", first), demand=-(budget - 1))
    graph.add_node(("pool", tokens), demand=budget - 1)
    for t in range(first, tokens):
        graph.add_edge(("pool", t), ("pool", t + 1), weight=0, capacity=budget)
        for j in range(t):
            if t == max(j + 1, first):
                graph.add_edge(("pool", t), (j, t), weight=0, capacity=1)
            graph.add_edge((j, t), ("paid", j, t), weight=-int(fixed[t, j]), capacity=1)
            graph.add_edge(("paid", j, t), ("pool", t + 1), weight=0, capacity=1)
            if t + 1 < tokens:
                graph.add_edge(("paid", j, t), (j, t + 1), weight=0, capacity=1)
    cost, _ = nx.network_simplex(graph)
    return sum(int(fixed[t, t]) for t in range(prefill, tokens)) - cost


def replayed_value(fixed, schedule):
    """Total retained mass of a schedule, step by step; each step must be one the engine makes."""
    tokens, prefill, budget = len(fixed), schedule.prefill, schedule.budget
    evicted_at = schedule.evicted_at
    retained = set(range(prefill))
    total = 0
    for t in range(max(prefill - 1, 0), tokens):
        visible = retained | {t}
        if t >= prefill:
            assert len(visible) <= budget
            total += sum(int(fixed[t, j]) for j in visible)
        retained = {j for j in visible if evicted_at[j] > t}
        if t < tokens - 1:
            # Evictions happen when the visible set is full, and only then.
            assert len(retained) == min(len(visible), budget - 1)
    for j in range(tokens):
        assert max(j, prefill - 1) <= evicted_at[j] <= tokens
    return total


def belady_mass_value(rows, budget):
    """Total of the rule that evicts the entry of least remaining mass (oldest among equals)."""
    retained, total = set(), 0.0
    for t in range(len(rows)):
        retained.add(t)
        total += sum(rows[t, j] for j in retained)
        if len(retained) == budget:
            retained.remove(min(retained, key=lambda j: (rows[t + 1 :, j].sum(), j)))
    return total


def top_k_total(fixed, budget, prefill=0):
    """The k largest entries of each scored row, own entry or not: an upper bound."""
    rows = fixed[prefill:]
    return int(np.sort(rows, axis=1)[:, ::-1][:, :budget].sum())


def or_tools_optimum(fixed, budget):
    """The optimum as a min-cost flow of OR-tools in chain form: a node for each token and row.

    Retained slots flow from row to row; a slot that holds key j during row t pays minus its mass.
    Integers throughout. Node t is the pool of free slots before row t.
    """
    from ortools.graph.python import min_cost_flow

    tokens = len(fixed)
    pairs = zip(*np.tril_indices(tokens, -1), strict=True)
    held = {(int(j), int(t)): tokens + 1 + n for n, (t, j) in enumerate(pairs)}
    flow = min_cost_flow.SimpleMinCostFlow()
    for t in range(1, tokens):
        flow.add_arc_with_capacity_and_unit_cost(t, t + 1, budget - 1, 0)
    for (j, t), node in held.items():
        gain = -int(fixed[t, j])
        if t == j + 1:
            flow.add_arc_with_capacity_and_unit_cost(t, node, 1, 0)
        after = held.get((j, t + 1))
        if after is not None:
            flow.add_arc_with_capacity_and_unit_cost(node, after, 1, gain)
        flow.add_arc_with_capacity_and_unit_cost(node, t + 1, 1, gain)
    flow.set_node_supply(1, budget - 1)
    flow.set_node_supply(tokens, 1 - budget)
    status = flow.solve()
    assert status == flow.OPTIMAL, status
    return int(np.trace(fixed)) - flow.optimal_cost()
