"""Every maximiser keeps what it promises, against the best set by brute force."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from submodular_functions import best_value, functions, instances

from h2o_theory import submodular as sm
from h2o_theory.errors import BadArgument

MAXIMISERS = {
    "greedy": sm.greedy,
    "lazy": sm.lazy_greedy,
    "top-k": sm.top_k,
    "removal": sm.removal_greedy,
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


def test_modular_functions_are_solved_exactly_by_all_that_look_at_everything():
    function = sm.modular([3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0])
    for method in ("greedy", "lazy", "top-k", "removal", "exhaustive"):
        found = MAXIMISERS[method](function, 3)
        assert sorted(found.members) == [4, 5, 7] and found.value == 20
        assert found.certified_ratio == 1
    assert sm.top_k(function, 3).guarantee.factor == 1
    assert sm.removal_greedy(function, 3).guarantee.factor == 1


def test_ties_are_decided_by_index():
    equal = sm.modular([1.0] * 5)
    assert sm.greedy(equal, 2).members == sm.top_k(equal, 2).members == (0, 1)
    assert sm.removal_greedy(equal, 2).members == (3, 4)


def test_too_many_sets_are_refused():
    with pytest.raises(BadArgument, match="too many sets"):
        sm.exhaustive_maximum(sm.modular(np.ones(40)), 20)


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
