"""One budget by prices and repair: equal to brute force, to the curve, and certified."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optimum_referees import (
    brute_force,
    chain_flow_optimum,
    replayed_value,
    softmax_rows,
    tied_rows,
)

from h2o_theory.errors import BadArgument, BadBudget, InvalidAttention, OutOfRange
from h2o_theory.optimum import (
    check_certificate,
    optimum_at,
    optimum_curve,
    single,
    to_fixed_point,
)
from h2o_theory.optimum.path import build_network
from h2o_theory.optimum.repair import new_plan, settle_excess


def bursts(tokens, seed):
    """Uniform rows but for short bursts of attention on one old key: prices of very uneven size."""
    rng = np.random.default_rng(seed)
    rows = np.tril(rng.random((tokens, tokens))) / tokens
    for _ in range(tokens // 3):
        j = rng.integers(0, tokens - 1)
        t = rng.integers(j + 1, tokens)
        rows[t : t + 3, j] += 5.0
    return rows


FAMILIES = {
    "softmax": softmax_rows,
    "tied": tied_rows,
    "bursts": bursts,
    "equal": lambda tokens, seed: np.tril(np.full((tokens, tokens), 0.5)),
    "zero": lambda tokens, seed: np.zeros((tokens, tokens)),
    "own entry only": lambda tokens, seed: np.eye(tokens),
}


def assert_optimal(fixed, schedule, value):
    assert schedule.value == value == replayed_value(fixed, schedule)
    certificate = check_certificate(fixed, schedule)
    assert certificate.optimal, certificate.message


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tokens", [1, 2, 3, 5, 6])
def test_equals_brute_force_at_every_budget_and_prefill(family, tokens):
    fixed = to_fixed_point(FAMILIES[family](tokens, tokens))
    for prefill in range(tokens + 1):
        for budget in range(1, tokens + 1):
            schedule = optimum_at(fixed, budget, prefill=prefill)
            assert (schedule.budget, schedule.prefill) == (budget, prefill)
            assert_optimal(fixed, schedule, brute_force(fixed, budget, prefill))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_equals_the_curve_on_any_integers(data):
    tokens = data.draw(st.integers(1, 9), label="tokens")
    largest = data.draw(st.sampled_from([1, 3, 2**20, 2**52]), label="largest")
    cells = st.lists(st.integers(0, largest), min_size=tokens**2, max_size=tokens**2)
    fixed = np.tril(np.reshape(data.draw(cells, label="cells"), (tokens, tokens)))
    prefill = data.draw(st.integers(0, tokens), label="prefill")
    curve = optimum_curve(fixed, tokens, prefill=prefill)
    for budget in range(1, tokens + 1):
        schedule = optimum_at(fixed, budget, prefill=prefill)
        assert_optimal(fixed, schedule, curve.values[budget - 1])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tokens, prefill", [(64, 0), (64, 20), (64, 63), (200, 0), (300, 50)])
def test_equals_the_curve(family, tokens, prefill):
    fixed = to_fixed_point(FAMILIES[family](tokens, 7))
    curve = optimum_curve(fixed, tokens, prefill=prefill)
    for budget in (1, 2, 3, tokens // 10, tokens // 5, tokens // 2, tokens - 1, tokens):
        schedule = optimum_at(fixed, budget, prefill=prefill)
        assert_optimal(fixed, schedule, curve.values[budget - 1])


@pytest.mark.parametrize("family", ["softmax", "tied", "bursts"])
def test_equals_network_simplex_in_integers(family):
    fixed = to_fixed_point(FAMILIES[family](24, 1))
    for budget in (2, 5, 12):
        assert optimum_at(fixed, budget).value == chain_flow_optimum(fixed, budget)


def test_numbers_near_the_limit_of_int64_do_not_overflow():
    rng = np.random.default_rng(3)
    fixed = np.tril(rng.integers(0, 2, (40, 40)))
    fixed[30, 5] = 2**59
    fixed[20, 4] = 2**58
    curve = optimum_curve(fixed, 40)
    for budget in range(1, 41):
        assert_optimal(fixed, optimum_at(fixed, budget), curve.values[budget - 1])
    largest = np.tril(np.full((4, 4), (2**60 - 1000) // 10))
    for budget in range(1, 5):
        value = optimum_curve(largest, 4).values[budget - 1]
        assert_optimal(largest, optimum_at(largest, budget), value)


def test_units_far_below_single_precision_are_still_exact():
    # Float32 cannot tell these rows apart; the repair works in integers and can.
    rng = np.random.default_rng(5)
    fixed = np.tril(2**40 + rng.integers(0, 50, (60, 60)))
    curve = optimum_curve(fixed, 60)
    for budget in (2, 6, 20, 50):
        assert_optimal(fixed, optimum_at(fixed, budget), curve.values[budget - 1])


def test_gives_up_repairs_that_cost_too_much():
    fixed = to_fixed_point(np.tril(np.full((300, 300), 0.5)))
    network = build_network(fixed, 1)
    same_price = np.arange(300) * 2**33
    assert not settle_excess(network, new_plan(network, same_price.copy(), 9), 100)
    plan = new_plan(network, same_price.copy(), 9)
    assert plan.excess.any()
    assert settle_excess(network, plan, 2**40)
    assert not plan.excess.any()


def test_without_repairs_the_optimum_is_the_same(monkeypatch):
    monkeypatch.setattr(single, "settle_excess", lambda network, plan, limit: False)
    for rows in (softmax_rows, bursts, tied_rows):
        fixed = to_fixed_point(rows(70, 3))
        curve = optimum_curve(fixed, 70)
        for budget in (1, 2, 7, 30, 70):
            assert_optimal(fixed, optimum_at(fixed, budget), curve.values[budget - 1])


def test_results_are_read_only_and_repeatable():
    fixed = to_fixed_point(softmax_rows(80, 1))
    once, again = optimum_at(fixed, 9), optimum_at(fixed, 9)
    assert once.evicted_at.tolist() == again.evicted_at.tolist()
    assert once.prices.tolist() == again.prices.tolist()
    with pytest.raises(ValueError, match="read-only"):
        once.evicted_at[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        once.prices[0] = 0


def test_threads_agree_with_one_thread():
    heads = [to_fixed_point(softmax_rows(120, seed)) for seed in range(6)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda head: optimum_at(head, 20).value, heads))
    assert together == [optimum_at(head, 20).value for head in heads]


def test_refuses_what_the_curve_refuses():
    fixed = to_fixed_point(softmax_rows(10, 1))
    for budget in (0, 11, -1):
        with pytest.raises(BadBudget, match="budget"):
            optimum_at(fixed, budget)
    with pytest.raises(BadArgument, match="whole number"):
        optimum_at(fixed, 2.5)
    with pytest.raises(OutOfRange, match="prefill"):
        optimum_at(fixed, 2, prefill=11)
    with pytest.raises(InvalidAttention, match="causal"):
        optimum_at(np.ones((4, 4), dtype=np.int64), 2)
    with pytest.raises(BadArgument, match="int64"):
        optimum_at(softmax_rows(10, 1), 2)
