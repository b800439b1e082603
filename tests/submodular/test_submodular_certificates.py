"""Bounds and curvature, each against the exhaustive optimum."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from submodular_functions import best_value, functions

from h2o_theory import submodular as sm
from h2o_theory.errors import BadArgument
from h2o_theory.optimum import square_root


@settings(max_examples=100, deadline=None)
@given(functions(), st.data())
def test_the_online_bound_holds_from_any_set(function, data):
    size = data.draw(st.integers(1, function.size))
    members = data.draw(st.lists(st.integers(0, function.size - 1), unique=True))
    assert sm.online_bound(function.select(members), size) >= best_value(function, size) - 1e-9


@settings(max_examples=80, deadline=None)
@given(functions(), st.data())
def test_prefixes_tighten_the_bound_and_it_still_holds(function, data):
    size = data.draw(st.integers(1, function.size))
    found = sm.greedy(function, size)
    tight = sm.prefix_bound(function, found.members, size)
    assert best_value(function, size) - 1e-9 <= tight <= found.upper + 1e-9


@settings(max_examples=100, deadline=None)
@given(functions(), st.data())
def test_curvatures_bound_greedy(function, data):
    size = data.draw(st.integers(1, function.size))
    found, optimum = sm.greedy(function, size), best_value(function, size)
    total = sm.total_curvature(function)
    assert 0 <= total <= 1
    assert found.value >= sm.curvature_factor(total, size) * optimum - 1e-9


def test_curvature_at_its_ends():
    assert sm.total_curvature(sm.modular([1.0, 0.0, 3.0])) == 0
    assert sm.total_curvature(sm.coverage([[0], [0]], 1)) == 1
    half = sm.budget_additive([1.0, 1.0], 1.5)
    assert sm.total_curvature(half) == pytest.approx(0.5)


def test_total_curvature_says_little_on_attention_where_the_bound_says_much():
    rows = np.tril(np.exp(2 * np.random.default_rng(0).normal(size=(60, 60))))
    function = sm.row_sums(rows / rows.sum(axis=1, keepdims=True), square_root())
    found = sm.lazy_greedy(function, 12)
    factor = sm.curvature_factor(sm.total_curvature(function), 12)
    assert factor < 0.7
    assert found.value / sm.prefix_bound(function, found.members, 12) > factor + 0.1


@pytest.mark.parametrize(
    "call",
    [
        lambda: sm.total_curvature(sm.set_function(len, 2)),
        lambda: sm.prefix_bound(sm.set_function(len, 2), [0], 1),
        lambda: sm.prefix_bound(sm.modular([1.0, 2.0]), [0], 0),
        lambda: sm.online_bound(sm.set_function(len, 2).select([0]), 1),
        lambda: sm.online_bound(sm.modular([1.0]).select(), "1"),
        lambda: sm.curvature_factor(1.2, 2),
        lambda: sm.greedy_factor(0),
        lambda: sm.noisy_greedy_bound(1.0, 1, -1.0),
    ],
)
def test_unusable_arguments_are_refused(call):
    with pytest.raises(BadArgument):
        call()
