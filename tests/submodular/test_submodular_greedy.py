"""Greedy in its forms: at least its guarantee, never above its bound, lazy as plain."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from submodular_functions import best_value, functions

from benchmarks import submodular as bench
from h2o_theory import submodular as sm
from h2o_theory.errors import BadArgument, BadBudget


@settings(max_examples=120, deadline=None)
@given(functions(), st.data())
def test_greedy_keeps_its_guarantee_and_its_bound(function, data):
    size = data.draw(st.integers(1, function.size))
    optimum = best_value(function, size)
    for found in (sm.greedy(function, size), sm.lazy_greedy(function, size)):
        assert found.value == pytest.approx(function.value(found.members), abs=1e-9)
        assert len(set(found.members)) == size
        assert found.value >= found.guarantee.factor * optimum - 1e-9
        assert found.value <= optimum + 1e-9
        assert found.upper >= optimum - 1e-9


@settings(max_examples=80, deadline=None)
@given(functions(), st.data())
def test_lazy_greedy_chooses_as_greedy_does(function, data):
    size = data.draw(st.integers(1, function.size))
    plain, lazy = sm.greedy(function, size), sm.lazy_greedy(function, size)
    prefixes = [function.value(plain.members[:i]) for i in range(size + 1)]
    assert [function.value(lazy.members[:i]) for i in range(size + 1)] == pytest.approx(
        prefixes, abs=1e-9
    )
    assert lazy.evaluations <= plain.evaluations + function.size * size


def test_lazy_greedy_breaks_exact_ties_as_greedy_does():
    function = sm.coverage([[0, 1], [2, 3], [0, 2], [1, 3], [0, 3]], 4)
    for size in range(1, 6):
        assert sm.lazy_greedy(function, size).members == sm.greedy(function, size).members
    assert sm.greedy(function, 3).members == (0, 1, 2)


def test_lazy_greedy_looks_at_few_elements():
    rng = np.random.default_rng(0)
    keys = 4 * rng.normal(size=(40, 8))[rng.integers(0, 40, 300)] + rng.normal(size=(300, 8))
    function = sm.facility_location(sm.key_similarity(keys))
    plain, lazy = sm.greedy(function, 30), sm.lazy_greedy(function, 30)
    assert lazy.members == plain.members
    assert lazy.evaluations < plain.evaluations / 4


def test_the_classical_worst_case_of_greedy_is_met():
    """Hochbaum and Pathria's grid: greedy covers rows of shares (1-1/k)^i, the best its columns."""
    k = 3
    cells = [(row, column) for row in range(k + 1) for column in range(k)]
    weights = [(k - 1) ** row * k ** max(k - row, 1) for row, _ in cells]
    sets = [[i for i, (row, _) in enumerate(cells) if row == wanted] for wanted in range(k)]
    sets += [[i for i, (_, column) in enumerate(cells) if column == c] for c in range(k)]
    function = sm.weighted_coverage(sets, weights)
    found = sm.greedy(function, k)
    assert best_value(function, k) == sum(weights)
    assert found.value == pytest.approx(sm.greedy_factor(k) * sum(weights))


@settings(max_examples=60, deadline=None)
@given(functions(), st.data())
def test_noisy_greedy_keeps_its_bound_under_adversarial_noise(function, data):
    size = data.draw(st.integers(1, function.size))
    noise = data.draw(st.sampled_from([0.0, 0.01, 0.2, 1.0]))

    def against(gains, candidates, selection):
        return np.where(gains >= np.median(gains), gains - noise, gains + noise)

    found = sm.noisy_greedy(function, size, against, noise)
    optimum = best_value(function, size)
    bound = sm.noisy_greedy_bound(optimum, size, noise)
    assert found.value >= bound - 1e-9
    assert bound == pytest.approx(found.guarantee.factor * optimum - found.guarantee.loss)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_noisy_greedy_reaches_its_bound(size):
    """k elements worth 2 eps beside k worth nothing, all of which look worth eps."""
    function = sm.modular([0.0] * size + [2.0] * size)
    found = sm.noisy_greedy(function, size, lambda gains, *_: np.ones_like(gains), 1.0)
    assert found.value == 0 == sm.noisy_greedy_bound(best_value(function, size), size, 1.0)


def test_an_oracle_that_errs_too_much_is_refused():
    function = sm.modular([1.0, 2.0])
    with pytest.raises(BadArgument, match="errs"):
        sm.noisy_greedy(function, 1, lambda gains, *_: gains + 0.2, 0.1)
    with pytest.raises(BadArgument, match="errs"):
        sm.noisy_greedy(function, 1, lambda gains, *_: gains[:1], 0.1)


def test_the_benchmark_says_what_is_not_installed(monkeypatch):
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    table = bench.run()
    assert table["baseline"].tolist()[0] == "naive greedy" and len(table) == 3
    missing = table[table["baseline"].str.contains("not installed")]
    assert missing["note"].str.contains("pip install").all() and missing["ratio"].isna().all()
    assert (table["seconds"] > 0).all()


def test_no_promise_is_made_for_undeclared_functions():
    square = sm.set_function(lambda chosen: len(chosen) ** 2, 4)
    found = sm.greedy(square, 2)
    assert found.guarantee is None and found.upper == np.inf and found.certified_ratio == 0
    with pytest.raises(BadArgument, match="submodular"):
        sm.lazy_greedy(square, 2)


@pytest.mark.parametrize("size", [0, 4, -1])
def test_impossible_cardinalities_are_refused(size):
    with pytest.raises(BadBudget, match="1 to 3"):
        sm.greedy(sm.modular([1, 2, 3]), size)


def test_factors_at_their_ends():
    assert sm.greedy_factor(1) == 1
    assert sm.greedy_factor(10**6) == pytest.approx(1 - np.exp(-1), abs=1e-6)
    assert sm.curvature_factor(0, 5) == 1
    assert sm.curvature_factor(1e-14, 5) == pytest.approx(1)
    for size in (1, 2, 7):
        assert sm.curvature_factor(1, size) == pytest.approx(sm.greedy_factor(size))
