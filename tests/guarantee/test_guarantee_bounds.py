"""The repaired guarantee never exceeds the true ratio, and the printed one can."""

from itertools import product

import numpy as np
import pytest
from guarantee_instances import SHAPES, attention, schedule
from hypothesis import given, settings
from hypothesis import strategies as st

from h2o_theory import submodular as sm
from h2o_theory.errors import BadArgument, BadBudget
from h2o_theory.instances import needle_rows, trap_rows

OPTIONS = [
    dict(zip(("seen", "uniform", "together"), chosen, strict=True))
    for chosen in product([False, True], repeat=3)
]


def swap_rule(seen, tokens, budget):
    """The schedule that rule D.22 makes under a reading that needs no history."""
    evicted_at, kept = np.full(tokens, tokens), []
    for t in range(tokens):
        visible = np.array([*kept, t])
        kept = visible.tolist()
        if len(visible) == budget:
            losses = seen.at(visible[:-1], t).select(visible).losses()
            gone = int(visible[losses.argmin()])
            evicted_at[gone] = t
            kept.remove(gone)
    return evicted_at


def true_ratios(reading, conditions, evicted_at):
    """v_t / O_t by the definitions alone: sets from the schedule, O_t from all pairs of sets."""
    ratios = []
    for t in conditions.step:
        before = [j for j in range(t) if evicted_at[j] > t - 1]
        after = [j for j in range(t + 1) if evicted_at[j] > t]
        best = sm.DynamicFunction.best(reading, int(t), conditions.size).upper
        value = reading.value(np.array(before, dtype=int), int(t), np.array(after, dtype=int))
        ratios.append(value / best if best > 0 else 1.0)
    return np.array(ratios)


@pytest.mark.parametrize("name", sm.READINGS)
@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(5, 7),
    st.sampled_from(SHAPES),
    st.booleans(),
    st.integers(0, 3),
)
def test_bounds_never_exceed_the_true_ratio(name, seed, tokens, shape, tied, prefill):
    rng = np.random.default_rng(seed)
    rows = attention(rng, tokens, 2, tied)
    budget = int(rng.integers(2, tokens - 1))
    evicted_at = schedule(rng, tokens, budget, prefill)
    exact = sm.make_reading(name, rows, shape=shape, evicted_at=evicted_at)
    twin = {"row": "row_cached", "accumulated": "accumulated_cached"}.get(name)
    seen = twin and sm.make_reading(twin, rows, shape=shape, evicted_at=evicted_at)
    measured = sm.measure_conditions(exact, evicted_at, budget, approximate=seen, prefill=prefill)
    truth = true_ratios(exact, measured, evicted_at)
    assert (measured.ratio <= truth + 1e-9).all()
    for options in OPTIONS:
        assert (sm.repaired_bound(measured, **options) <= truth + 1e-9).all(), options
    assert (sm.direct_bound(measured) <= truth + 1e-9).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(4, 7))
def test_bounds_hold_for_any_dynamic_function(seed, tokens):
    """Neither monotone nor submodular nor continuous in Z: only values of at least 0."""
    rng = np.random.default_rng(seed)
    table = {}

    def wild(cache, step, members):
        return table.setdefault((cache, step, members), float(rng.choice([0.0, 0.1, 1.0, 7.0])))

    function = sm.dynamic_function(wild, tokens)
    budget = int(rng.integers(2, tokens - 1))
    evicted_at = schedule(rng, tokens, budget)
    measured = sm.measure_conditions(function, evicted_at, budget)
    truth = true_ratios(function, measured, evicted_at)
    assert measured.ratio == pytest.approx(truth)
    for options in OPTIONS:
        assert (sm.repaired_bound(measured, **options) <= truth + 1e-9).all()


@pytest.mark.parametrize("victim", ["h2o", "recent", "lfu"])
def test_bounds_hold_on_instances_made_to_fool_policies(victim):
    rows = trap_rows(victim, 26, 4)
    exact = sm.make_reading("row", rows)
    for evicted_at in (swap_rule(exact, 26, 4), schedule(np.random.default_rng(0), 26, 4)):
        measured = sm.measure_conditions(exact, evicted_at, 4)
        best = [np.sort(rows[t])[-3:].sum() for t in measured.step]
        assert measured.best_upper == pytest.approx(best)
        for options in OPTIONS:
            bound = sm.repaired_bound(measured, **options)
            assert (bound <= measured.value / best + 1e-9).all()


def test_conditions_are_the_smallest_that_hold():
    rng = np.random.default_rng(5)
    rows, evicted_at = attention(rng, 9), schedule(rng, 9, 4)
    exact = sm.make_reading("row", rows)
    found = sm.measure_conditions(exact, evicted_at, 4)
    assert found.step.tolist() == [2, 3, 4, 5, 6, 7] and found.size == 3
    value, carried, best = found.value, found.carried, found.best_upper
    for later, earlier, least in (
        (carried[1:], value[:-1], found.theta[1:]),
        (value[1:], carried[1:], found.swap_loss[1:]),
        (best[1:], best[:-1], found.gamma[1:]),
        (best[:-1], best[1:], found.gamma_used[1:]),
    ):
        assert (later >= (1 - least) * earlier - 1e-12).all()
        tight = least > 0
        assert later[tight] == pytest.approx((1 - least[tight]) * earlier[tight])
        assert (later[~tight] >= earlier[~tight] - 1e-12).all()
    assert found.theta[0] == found.gamma_used[0] == 0 and np.isnan(carried[0])


def test_one_condition_for_both_is_never_worse_than_two():
    rng = np.random.default_rng(8)
    for name in ("row", "accumulated", "row_sums"):
        rows, evicted_at = attention(rng, 20), schedule(rng, 20, 5)
        found = sm.measure_conditions(sm.make_reading(name, rows), evicted_at, 5)
        apart, together = sm.repaired_bound(found), sm.repaired_bound(found, together=True)
        assert (together >= apart - 1e-12).all() and (together <= found.ratio + 1e-12).all()
        assert (sm.repaired_bound(found, uniform=True) <= apart + 1e-12).all()
        assert sm.direct_bound(found) == pytest.approx(found.ratio)


def test_values_by_hand():
    """k = 2 of the paper; token 2 is refused, then token 0 given up for token 3."""
    rows = np.array(
        [[1, 0, 0, 0, 0], [0.5, 0.5, 0, 0, 0], [0.2, 0.7, 0.1, 0, 0], [0, 0.4, 0, 0.6, 0],
         [0, 0, 0, 0, 1]]
    )  # fmt: skip
    found = sm.measure_conditions(sm.make_reading("row", rows), [3, 5, 2, 5, 5], 3)
    assert found.step.tolist() == [1, 2, 3]
    assert found.value == pytest.approx([1, 0.9, 1])
    assert found.carried[1:] == pytest.approx([0.9, 0.4])
    assert found.best_upper == pytest.approx([1, 0.9, 1])
    assert found.theta == pytest.approx([0, 0.1, 1 - 0.4 / 0.9])
    assert found.swap_loss == pytest.approx([0, 0, 0])
    assert found.gamma == pytest.approx([0, 0.1, 0])
    assert found.gamma_used == pytest.approx([0, 0, 0.1])
    assert sm.repaired_bound(found) == pytest.approx([1, 0.9, 0.9 * 0.4 / 0.9 * 0.9])
    assert found.is_swap_rule.tolist() == [True, True, True]


def test_the_swap_rule_is_recognised_and_never_loses_by_what_it_follows():
    rows = attention(np.random.default_rng(2), 30)
    exact = sm.make_reading("accumulated", rows)
    greedy = sm.measure_conditions(exact, swap_rule(exact, 30, 6), 6)
    assert greedy.is_swap_rule.all() and greedy.swap_loss.max() < 1e-12
    other = sm.measure_conditions(exact, schedule(np.random.default_rng(0), 30, 6), 6)
    assert not other.is_swap_rule.all() and other.swap_loss.max() > 0
    assert sm.paper_premises(greedy).swaps_follow_rule
    assert not sm.paper_premises(other).hold


def test_a_rule_that_must_keep_the_newcomer_loses_what_monotonicity_would_grant():
    """The first step of Lemma D.29: R_t does not contain R_{t-1}, so f may fall."""
    rows = np.zeros((5, 5))
    rows[:, 0] = rows[2:, 1] = 0.5
    rows[:2, 0] = 1.0
    recent = [1, 2, 3, 4, 5]
    found = sm.measure_conditions(sm.make_reading("row", rows), recent, 2)
    assert found.swap_loss.max() == 1 and sm.repaired_bound(found)[-1] == 0


def test_the_printed_bound_fails_where_the_swap_loses_and_the_repaired_one_does_not():
    """theta = gamma = 0 at every step, so the lemma promises 1 - 1/e; the policy holds nothing."""
    rows = np.zeros((6, 6))
    rows[:, 0] = 1.0
    found = sm.measure_conditions(sm.make_reading("row", rows), [1, 2, 3, 4, 5, 6], 2)
    assert found.gamma_used.max() == 0 and found.theta.max() == 0
    bounds = sm.guarantee_bounds(found)
    assert bounds.paper[:-1] == pytest.approx(1 - np.exp(-1))
    assert (bounds.ratio_next[1:-1] == 0).all() and (bounds.repaired[1:] == 0).all()


def test_premises_and_what_they_leave():
    rows = np.tile(np.eye(1, 400)[0], (400, 1))
    exact = sm.make_reading("accumulated", rows)
    static = sm.measure_conditions(exact, swap_rule(exact, 400, 3), 3)
    held = sm.paper_premises(static)
    growth = static.gamma_used.max()
    assert held.alpha_used == pytest.approx(10 * 400 * growth) and not held.hold and held.vacuous
    late = sm.measure_conditions(sm.make_reading("row", rows), swap_rule(exact, 400, 3), 3)
    held = sm.paper_premises(late)
    assert held.hold and not held.vacuous and held.alpha_used == held.beta == 0
    assert sm.guarantee_bounds(late).paper[:-1] == pytest.approx(1 - np.exp(-1))


def test_needles_make_the_last_row_forget():
    rows = needle_rows(60, np.random.default_rng(1))
    exact = sm.make_reading("row", rows)
    found = sm.measure_conditions(exact, swap_rule(exact, 60, 6), 6)
    assert sm.repaired_bound(found)[-1] <= found.ratio[-1]
    assert sm.repaired_bound(found)[-1] < 0.5


@pytest.mark.parametrize(
    ("evicted_at", "budget", "error"),
    [
        ([4, 4, 4, 4], 2, BadArgument),
        ([2, 2, 4, 5, 5], 3, BadArgument),
        ([0, 1, 2], 2, BadArgument),
        ([0, 1, 2, 3, 4], 1, BadBudget),
        ([5, 5, 5, 5, 5], 5, BadBudget),
        ([5, 5, 5, 5, 5], 6, BadBudget),
        ([1.0, 2, 3, 4, 5], 2, BadArgument),
        ([0, 0, 2, 3, 4], 2, BadArgument),
    ],
)
def test_impossible_schedules_are_refused(evicted_at, budget, error):
    exact = sm.make_reading("row", attention(np.random.default_rng(0), 5))
    with pytest.raises(error):
        sm.measure_conditions(exact, evicted_at, budget)


def test_negative_values_are_refused():
    function = sm.dynamic_function(lambda cache, step, members: -1.0, 4)
    with pytest.raises(BadArgument, match="nowhere negative"):
        sm.measure_conditions(function, [1, 2, 3, 4], 2)
