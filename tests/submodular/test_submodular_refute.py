"""The refuter finds what is planted, in every definition, and reports how hard it tried."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from submodular_functions import NAMES, instances

from h2o_theory import submodular as sm
from h2o_theory.errors import BadArgument

SUBMODULAR_FORMS = tuple(sm.DEFINITIONS["submodular"])


def planted(size, fault):
    """sqrt(|S|), which is fine, with one set's value changed."""
    members, change = fault
    return sm.set_function(
        lambda chosen: len(chosen) ** 0.5 + change * (chosen == members),
        size,
        normalised=True,
        monotone=True,
        submodular=True,
    )


def recomputed(function, found):
    """The excess of a counterexample from f alone, by the definition's own formula."""
    case = found.counterexample
    first, second = set(case.first), set(case.second)
    value = lambda members: function.value(sorted(members))  # noqa: E731
    if case.definition == "growth":
        return value(first) - value(first | {case.element})
    if case.definition == "lattice":
        return value(first | second) + value(first & second) - value(first) - value(second)
    assert first <= second and case.element not in second
    late = value(second | {case.element}) - value(second)
    return late - (value(first | {case.element}) - value(first))


@pytest.mark.parametrize("definition", SUBMODULAR_FORMS)
@settings(max_examples=30, deadline=None)
@given(st.sets(st.integers(0, 5), min_size=1, max_size=5), st.sampled_from([-0.7, 0.7]))
def test_a_planted_fault_is_found_in_every_definition(definition, members, change):
    function = planted(6, (frozenset(members), change))
    found = sm.refute(function, "submodular", definition)
    assert found.counterexample is not None
    assert recomputed(function, found) == pytest.approx(found.counterexample.excess)
    assert found.counterexample.excess > 0.05
    assert frozenset(members) in {
        frozenset(combined)
        for first in [set(found.counterexample.first)]
        for second in [set(found.counterexample.second)]
        for combined in (
            first,
            second,
            first | second,
            first & second,
            first | {found.counterexample.element},
            second | {found.counterexample.element},
        )
    }


@pytest.mark.parametrize("definition", SUBMODULAR_FORMS)
def test_one_faulty_set_of_4096_is_found(definition):
    function = planted(12, (frozenset([0, 3, 4, 7, 8, 11]), 1e-4 - 0.5))
    found = sm.refute(function, "submodular", definition)
    assert found.exhaustive and found.evaluations == 4096
    assert recomputed(function, found) == pytest.approx(found.counterexample.excess)
    assert found.counterexample.excess > 0.3


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 5))
def test_the_three_definitions_agree_on_any_function(seed, size):
    rng = np.random.default_rng(seed)
    base = [function for name, function in instances(rng, size).items() if name != "modular"]
    noise = rng.normal(size=1 << size) * rng.choice([0, 1e-3, 1])
    function = sm.set_function(
        lambda chosen: (
            base[seed % len(base)].value(sorted(chosen)) + noise[sum(1 << j for j in chosen)]
        ),
        size,
    )
    verdicts = {
        sm.refute(function, "submodular", form).counterexample is None for form in SUBMODULAR_FORMS
    }
    assert len(verdicts) == 1


def test_monotone_modular_and_normalised():
    cut = sm.set_function(lambda chosen: len(chosen) * (5 - len(chosen)), 5)
    loss = sm.refute(cut, "monotone").counterexample
    assert loss.values["f(X)"] - loss.values["f(X + j)"] == loss.excess == 4
    assert sm.refute(cut, "submodular").counterexample is None
    bend = sm.refute(cut, "modular")
    assert bend.counterexample.excess == 2 and "not modular" in str(bend)
    shifted = sm.set_function(lambda chosen: 0.25, 3)
    assert sm.refute(shifted, "normalised").counterexample.excess == 0.25
    assert sm.refute(shifted, "modular").counterexample is None


@pytest.mark.parametrize("definition", SUBMODULAR_FORMS)
def test_beyond_twelve_elements_faults_that_are_common_are_found(definition):
    product = sm.set_function(lambda chosen: (3 in chosen) * (17 in chosen) + len(chosen), 20)
    found = sm.refute(product, "submodular", definition)
    assert not found.exhaustive and found.evaluations > 400
    assert found.counterexample.excess == pytest.approx(1)
    assert recomputed(product, found) == pytest.approx(1)
    square = sm.set_function(lambda chosen: len(chosen) ** 2, 30)
    assert sm.refute(square, "submodular", definition).counterexample is not None


@pytest.mark.parametrize("name", NAMES)
def test_beyond_twelve_elements_declared_functions_stand(name):
    function = instances(np.random.default_rng(5), 16)[name]
    for found in sm.refute_declared(function, trials=40):
        assert found.counterexample is None, str(found)
        assert not found.exhaustive and "random evaluations" in str(found)


def test_rounding_is_no_counterexample():
    weights = np.random.default_rng(1).random(8) * 1e6
    jitter = np.random.default_rng(2).normal(size=256) * 1e-6
    function = sm.set_function(
        lambda chosen: sum(weights[j] for j in chosen) + jitter[sum(1 << j for j in chosen)], 8
    )
    assert sm.refute(function, "modular").counterexample is None
    assert sm.refute(function, "modular", tolerance=0).counterexample is not None


def test_unknown_properties_and_definitions_are_refused():
    function = sm.modular([1.0, 2.0])
    with pytest.raises(BadArgument, match="property must be one of"):
        sm.refute(function, "convex")
    with pytest.raises(BadArgument, match="definition of submodular must"):
        sm.refute(function, "submodular", "growth")
