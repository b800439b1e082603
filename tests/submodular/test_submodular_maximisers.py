"""Every maximiser keeps what it promises, against the best set by brute force."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from submodular_functions import NAMES, best_value, functions, instances

from h2o_theory import submodular as sm
from h2o_theory.errors import BadArgument, MissingDependency

MAXIMISERS = {
    "greedy": sm.greedy,
    "lazy": sm.lazy_greedy,
    "top-k": sm.top_k,
    "removal": sm.removal_greedy,
    "local search": sm.local_search,
    "weighted swap": sm.weighted_swap,
    "preemptive swap": sm.preemptive_swap,
    "preemptive swap, c = 1/2": lambda f, k: sm.preemptive_swap(f, k, threshold=0.5),
    "sieve": sm.sieve_streaming,
    "exhaustive": sm.exhaustive_maximum,
}


@pytest.mark.parametrize("method", MAXIMISERS)
@settings(max_examples=60, deadline=None)
@given(functions(), st.data())
def test_promises_and_bounds_hold(method, function, data):
    size = data.draw(st.integers(1, function.size))
    found = MAXIMISERS[method](function, size)
    optimum = best_value(function, size)
    assert found.size == size and len(found.members) <= size
    assert found.guarantee is not None and 0 <= found.guarantee.factor <= 1
    promised = found.guarantee.factor * optimum - found.guarantee.loss
    assert promised - 1e-9 <= found.value <= optimum + 1e-9 <= found.upper + 2e-9
    check = sm.check_answer(function, found)
    assert check.consistent, check.message
    assert check.value <= optimum + 1e-9 and check.bound >= optimum - 1e-9


@settings(max_examples=60, deadline=None)
@given(functions(), st.data())
def test_streams_hold_in_any_order(function, data):
    size = data.draw(st.integers(1, function.size))
    order = data.draw(st.permutations(range(function.size)))
    optimum = best_value(function, size)
    for stream in (sm.weighted_swap, sm.preemptive_swap, sm.sieve_streaming):
        found = stream(function, size, order=order)
        assert found.value >= found.guarantee.factor * optimum - 1e-9
    assert sm.weighted_swap(function, size, order=order).stored == size + 1


@pytest.mark.parametrize("name", NAMES)
def test_the_programme_agrees_with_brute_force(name):
    for seed, tied in ((0, False), (1, True)):
        function = instances(np.random.default_rng(seed), 7, tied)[name]
        for size in (1, 3, 7):
            found = sm.milp_optimum(function, size)
            optimum = best_value(function, size)
            assert found.value == pytest.approx(optimum, rel=2e-6, abs=1e-9)
            assert found.upper >= optimum * (1 - 1e-9)
            assert found.certified_ratio == pytest.approx(1, abs=2e-6)


def test_the_programme_returns_an_interval_when_time_is_up():
    function = instances(np.random.default_rng(2), 18)["rows capped"]
    found = sm.milp_optimum(function, 6, time_limit=0)
    assert found.guarantee is None
    assert found.value <= sm.milp_optimum(function, 6).value <= found.upper + 1e-9


def test_without_scipy_the_programme_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(MissingDependency, match=r"scipy.*h2o-theory\[analysis\]"):
        sm.milp_optimum(sm.modular([1.0, 2.0]), 1)


def test_modular_functions_are_solved_exactly_by_all_that_look_at_everything():
    function = sm.modular([3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0])
    for method in ("greedy", "lazy", "top-k", "removal", "local search", "exhaustive"):
        found = MAXIMISERS[method](function, 3)
        assert sorted(found.members) == [4, 5, 7] and found.value == 20
        assert found.certified_ratio == 1
    assert sm.top_k(function, 3).guarantee.factor == 1
    assert sm.removal_greedy(function, 3).guarantee.factor == 1


def test_ties_are_decided_by_index():
    equal = sm.modular([1.0] * 5)
    assert sm.greedy(equal, 2).members == sm.top_k(equal, 2).members == (0, 1)
    assert sm.removal_greedy(equal, 2).members == (3, 4)
    assert sm.preemptive_swap(equal, 2).members == sm.weighted_swap(equal, 2).members == (0, 1)


def test_without_a_threshold_every_gain_is_taken_and_nothing_promised():
    growing = sm.modular([2.0 ** (i / 8) for i in range(40)])
    eager = sm.preemptive_swap(growing, 3, threshold=0.0)
    assert eager.members == (37, 38, 39) and eager.guarantee is None
    lazy = sm.preemptive_swap(growing, 3, threshold=1.0)
    assert lazy.value < eager.value and lazy.value >= eager.value / 4


def test_local_search_says_when_it_was_stopped():
    function = sm.modular(np.arange(10.0))
    stopped = sm.local_search(function, 3, rounds=1)
    assert stopped.guarantee is None
    assert sm.local_search(function, 3, start=[9, 0, 8]).value == 24
    with pytest.raises(BadArgument, match="start"):
        sm.local_search(function, 3, start=[1, 2])


def test_the_sieve_holds_more_than_a_cache_may():
    function = instances(np.random.default_rng(1), 30)["facility location"]
    assert sm.sieve_streaming(function, 4).stored > 5


@pytest.mark.parametrize(
    "call",
    [
        lambda f: sm.stochastic_greedy(f, 1, epsilon=0, rng=np.random.default_rng(0)),
        lambda f: sm.sieve_streaming(f, 1, epsilon=1),
        lambda f: sm.preemptive_swap(f, 1, threshold=-1),
        lambda f: sm.weighted_swap(f, 1, order=[0, 0]),
        lambda f: sm.exhaustive_maximum(sm.modular(np.ones(40)), 20),
        lambda f: sm.milp_optimum(sm.set_function(len, 2), 1),
    ],
)
def test_unusable_arguments_are_refused(call):
    with pytest.raises(BadArgument):
        call(sm.modular([1.0, 2.0]))


def test_the_check_reports_what_is_wrong():
    function = instances(np.random.default_rng(0), 6)["coverage"]
    answer = sm.greedy(function, 3)
    assert "states a value" in sm.check_answer(function, replace(answer, value=99.0)).message
    assert "below the value" in sm.check_answer(function, replace(answer, upper=0.0)).message
    doubled = replace(answer, members=(1, 1))
    assert sm.check_answer(function, doubled).value is None
    assert not sm.check_answer(function, doubled).consistent
    square = sm.set_function(lambda s: len(s) ** 2, 6, monotone=True, submodular=True)
    assert "not as declared" in sm.check_answer(square, sm.greedy(square, 3)).message
