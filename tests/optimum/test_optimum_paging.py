"""Paging with refetch against brute force over all contents and network simplex."""

from functools import cache
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optimum_referees import softmax_rows

from h2o_theory.errors import BadArgument, BadBudget, InvalidAttention, OutOfRange
from h2o_theory.optimum import belady_min, to_fixed_point, weighted_paging


def brute_force_paging(weights, budget, prefill=0):
    """Largest saving over all contents of the cache between rows. T <= 6."""
    tokens = len(weights)

    def choices(at_hand):
        for size in range(min(budget - 1, len(at_hand)) + 1):
            yield from map(frozenset, combinations(sorted(at_hand), size))

    @cache
    def best_from(t, held):
        if t == tokens:
            return 0
        saved = sum(int(weights[t, j]) for j in held)
        at_hand = held | {t} | {j for j in range(t) if weights[t, j]}
        return saved + max(best_from(t + 1, kept) for kept in choices(at_hand))

    return max(best_from(prefill, kept) for kept in choices(frozenset(range(prefill))))


def simplex_paging(weights, budget):
    """Network simplex on the flow of k-1 slots, an arc for every pair of successive references."""
    tokens = len(weights)
    graph = nx.MultiDiGraph()
    graph.add_node(0, demand=-(budget - 1))
    graph.add_node(tokens - 1, demand=budget - 1)
    for t in range(tokens - 1):
        graph.add_edge(t, t + 1, weight=0, capacity=budget)
    for j in range(tokens):
        last = j
        for t in range(j + 1, tokens):
            if weights[t, j]:
                graph.add_edge(last, t, weight=-int(weights[t, j]), capacity=1)
                last = t
    return -nx.network_simplex(graph)[0]


def some_weights(tokens, seed, density=0.5, largest=9):
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, largest + 1, (tokens, tokens))
    return np.tril(weights * (rng.random((tokens, tokens)) < density))


def assert_consistent(weights, paging):
    """Gaps join successive references, no row holds too many, and the sums are right."""
    load = np.zeros(len(weights), dtype=int)
    seen = set()
    for key, start, end, weight, kept in zip(
        paging.keys, paging.starts, paging.ends, paging.weights, paging.kept, strict=True
    ):
        assert weights[end, key] == weight > 0
        assert start == max(key, paging.prefill - 1) or weights[start, key]
        assert not weights[start + 1 : end, key].any()
        seen.add((end, key))
        load[start:end] += kept
    first = max(paging.prefill, 1)
    references = {(t, j) for t in range(first, len(weights)) for j in range(t) if weights[t, j]}
    assert seen == references and paging.references == len(references)
    assert load.max(initial=0) <= paging.budget - 1
    assert paging.saved + paging.cost == sum(int(weights[t, j]) for t, j in references)


@pytest.mark.parametrize("density", [0.2, 0.6, 1.0])
@pytest.mark.parametrize("tokens", [1, 2, 4, 6])
def test_both_equal_brute_force(tokens, density):
    weights = some_weights(tokens, tokens, density)
    for prefill in range(tokens + 1):
        for budget in range(1, tokens + 1):
            unit = belady_min(weights > 0, budget, prefill=prefill)
            assert_consistent((weights > 0).astype(int), unit)
            assert unit.hits == unit.saved == brute_force_paging(weights > 0, budget, prefill)
            paging = weighted_paging(weights, budget, prefill=prefill)
            assert_consistent(weights, paging)
            assert paging.saved == paging.bound == brute_force_paging(weights, budget, prefill)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_belady_is_optimal_for_unit_costs(data):
    tokens = data.draw(st.integers(2, 12), label="tokens")
    cells = st.lists(st.booleans(), min_size=tokens**2, max_size=tokens**2)
    accesses = np.tril(np.reshape(data.draw(cells, label="cells"), (tokens, tokens)))
    budget = data.draw(st.integers(1, tokens), label="budget")
    flow = weighted_paging(accesses.astype(np.int64), budget)
    assert belady_min(accesses, budget).hits == flow.saved == flow.bound


@pytest.mark.parametrize("budget", [2, 5, 12])
@pytest.mark.parametrize("seed", range(3))
def test_both_equal_network_simplex(seed, budget):
    weights = some_weights(40, seed, 0.15, 1000)
    assert weighted_paging(weights, budget).saved == simplex_paging(weights, budget)
    unit = (weights > 0).astype(np.int64)
    assert belady_min(weights > 0, budget).saved == simplex_paging(unit, budget)


@pytest.mark.parametrize("budget", [1, 3, 20, 60, 200])
def test_belady_equals_the_flow_on_attention(budget):
    rows = softmax_rows(200, 1)
    accesses = np.tril(rows * np.arange(1, 201)[:, None] >= 1.0)
    flow = weighted_paging(accesses.astype(np.int64), budget)
    belady = belady_min(accesses, budget)
    assert belady.hits == flow.hits == flow.bound
    assert belady.hit_rate == belady.hits / belady.references
    assert belady.prices is None and belady.bound is None
    assert (flow.prices >= 0).all()


def test_weights_change_what_is_held():
    # One slot: key 0 would be hit once for 10, key 1 twice for 1 each.
    weights = np.zeros((5, 5), dtype=np.int64)
    weights[4, 0] = 10
    weights[2, 1] = weights[3, 1] = 1
    assert belady_min(weights > 0, 2).hits == 2
    assert weighted_paging(weights, 2).saved == 10


def test_a_budget_for_everything_never_misses():
    fixed = to_fixed_point(softmax_rows(30, 1))
    paging = weighted_paging(fixed, 30)
    assert paging.kept.all() and paging.cost == 0
    assert paging.saved == fixed.sum() - np.trace(fixed)
    nothing = belady_min(np.zeros((4, 4), dtype=bool), 2)
    assert nothing.references == 0 and np.isnan(nothing.hit_rate)


def test_ties_drop_the_lowest_position():
    accesses = np.zeros((4, 4), dtype=bool)
    accesses[3, :3] = True
    assert belady_min(accesses, 3).kept.tolist() == [False, True, True]


def test_refuses_unusable_input():
    accesses = np.eye(4, dtype=bool)
    with pytest.raises(BadArgument, match="boolean"):
        belady_min(np.eye(4), 2)
    with pytest.raises(InvalidAttention, match="causal"):
        belady_min(np.ones((4, 4), dtype=bool), 2)
    with pytest.raises(BadBudget, match="budget"):
        belady_min(accesses, 5)
    with pytest.raises(OutOfRange, match="prefill"):
        weighted_paging(np.eye(4, dtype=np.int64), 2, prefill=5)
    with pytest.raises(InvalidAttention, match="negative"):
        weighted_paging(-np.eye(4, dtype=np.int64), 2)
    with pytest.raises(BadArgument, match="int64"):
        weighted_paging(np.eye(4), 2)
