"""Set functions: declared properties hold, and selections agree with values computed anew."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from submodular_functions import NAMES, functions, instances

from h2o_theory import submodular as sm
from h2o_theory.errors import BadArgument
from h2o_theory.optimum import capped, square_root


@pytest.mark.parametrize("tied", [False, True], ids=["random", "tied"])
@pytest.mark.parametrize("name", NAMES)
def test_no_declared_property_is_refuted(name, tied):
    for seed, size in enumerate((1, 2, 5, 8)):
        function = instances(np.random.default_rng(seed), size, tied)[name]
        assert function.properties.submodular and function.properties.monotone
        for found in sm.refute_declared(function):
            assert found.exhaustive and found.counterexample is None, str(found)


@settings(max_examples=80, deadline=None)
@given(functions(least=2), st.randoms(use_true_random=False))
def test_selections_agree_with_values_computed_anew(function, random):
    selection = function.select()
    for _ in range(8):
        outside = selection.outside()
        members = list(selection.members)
        value = function.value(members)
        assert selection.value == pytest.approx(value, abs=1e-9)
        gains = [function.value([*members, j]) - value for j in outside]
        assert selection.gains(outside) == pytest.approx(gains, abs=1e-9)
        assert [selection.gain(j) for j in outside] == pytest.approx(gains, abs=1e-9)
        rest = [[u for u in members if u != gone] for gone in members]
        losses = [value - function.value(others) for others in rest]
        assert selection.losses() == pytest.approx(losses, abs=1e-9)
        if members and (random.random() < 0.3 or not outside.size):
            selection.drop(random.choice(members))
        else:
            selection.add(random.choice(outside.tolist()))


def test_values_against_their_definitions():
    assert sm.modular([1, 2, 4]).value([0, 2]) == 5
    assert sm.concave_of_modular([1, 2, 7], square_root()).value([1, 2]) == 3
    assert sm.budget_additive([1, 2, 4], 4.5).value([1, 2]) == 4.5
    assert sm.coverage([[0, 1], [1, 2], [3]], 4).value([0, 1]) == 3
    assert sm.weighted_coverage([[0, 1], [1, 2]], [1, 10, 100]).value([1]) == 110
    assert sm.row_sums([[0.5, 0.25], [0, 0.25]], capped(0.6)).value([0, 1]) == 0.85
    assert sm.facility_location([[1, 2], [5, 3]]).value([0, 1]) == 7
    assert sm.log_det(np.diag([1.0, 3.0])).value([0, 1]) == pytest.approx(np.log(8))
    assert sm.key_similarity([[1, 0], [0, 2], [-3, 0]])[0].tolist() == [1, 0.5, 0]


def test_a_callable_gets_a_frozenset_and_must_be_finite():
    function = sm.set_function(lambda chosen: len(chosen) ** 0.5, 4, monotone=True, submodular=True)
    assert function.select([1, 2]).gain(0) == pytest.approx(3**0.5 - 2**0.5)
    with pytest.raises(BadArgument, match="finite"):
        sm.set_function(lambda chosen: np.nan, 3).value([1])


@pytest.mark.parametrize(
    "make",
    [
        lambda: sm.modular([[1.0]]),
        lambda: sm.modular([-1.0]),
        lambda: sm.modular([np.inf]),
        lambda: sm.modular([]),
        lambda: sm.row_sums([[1.0]], np.sqrt),
        lambda: sm.budget_additive([1.0], 0),
        lambda: sm.coverage([[0, 0]], 2),
        lambda: sm.coverage([[2]], 2),
        lambda: sm.coverage([], 2),
        lambda: sm.facility_location([[np.nan]]),
        lambda: sm.key_similarity([1.0]),
        lambda: sm.log_det([[1.0, 2.0], [2.0, 1.0]]),
        lambda: sm.log_det([[1.0]], 0),
        lambda: sm.log_det([[1.0, 0.0], [1.0, 1.0]]),
        lambda: sm.set_function(3, 2),
        lambda: sm.set_function(len, 0),
    ],
)
def test_unusable_functions_are_refused(make):
    with pytest.raises(BadArgument):
        make()


@pytest.mark.parametrize("exponent", range(0, 21, 2))
@pytest.mark.parametrize("copies", [2, 5])
def test_log_det_of_duplicates_is_right_or_refused(exponent, copies):
    """Copies of m directions: f(all) is m log(1 + copies / noise), whatever the order of adding."""
    noise, directions = 10.0**-exponent, 3
    keys = np.repeat(np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0][:3], copies, 0)
    try:
        function = sm.log_det(keys @ keys.T, noise)
    except BadArgument as error:
        assert "noise" in str(error) and exponent >= 10
        return
    assert exponent <= 10
    best = directions * np.log1p(copies / noise)
    found = sm.greedy(function, directions * copies)
    assert found.value == pytest.approx(best, rel=1e-6) and found.value <= best * (1 + 1e-6)
    selection = function.select(range(copies))
    assert np.isfinite(selection.gains(selection.outside())).all()
    assert (
        np.isfinite(selection.losses()).all() and (selection.gains(selection.outside()) >= 0).all()
    )
