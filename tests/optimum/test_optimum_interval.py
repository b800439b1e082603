"""A certified interval holds the optimum, and the independent checker recomputes both sides."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optimum_referees import replayed_value, softmax_rows, tied_rows

from h2o_theory.errors import BadArgument, BadBudget, InvalidAttention, OutOfRange
from h2o_theory.optimum import (
    FRACTION_BITS,
    UNITS,
    check_certificate,
    optimum_curve,
    optimum_interval,
    to_fixed_point,
)


def assert_proved(fixed, interval, optimum):
    """Both sides as the checker finds them from the rows, and the optimum between them."""
    certificate = check_certificate(fixed, interval.schedule)
    assert certificate.feasible, certificate.message
    assert certificate.value == interval.lower == interval.schedule.value
    assert certificate.bound == interval.upper
    assert replayed_value(fixed, interval.schedule) == interval.lower
    assert interval.lower <= optimum <= interval.upper
    assert interval.gap == interval.upper - interval.lower
    assert (interval.status == "optimal") == (interval.gap == 0)


@pytest.mark.parametrize("rows", [softmax_rows, tied_rows])
@pytest.mark.parametrize("tokens, prefill", [(1, 0), (2, 0), (7, 3), (7, 7), (60, 0), (60, 25)])
def test_holds_the_optimum(rows, tokens, prefill):
    fixed = to_fixed_point(rows(tokens, tokens))
    curve = optimum_curve(fixed, tokens, prefill=prefill)
    for budget in {1, 2, tokens // 4, tokens // 2, tokens} & set(range(1, tokens + 1)):
        for steps in (0, 3, 40):
            interval = optimum_interval(fixed, budget, prefill=prefill, steps=steps)
            assert_proved(fixed, interval, curve.values[budget - 1])


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_holds_the_optimum_of_any_integers(data):
    tokens = data.draw(st.integers(1, 8), label="tokens")
    largest = data.draw(st.sampled_from([1, 3, 2**36, 2**50]), label="largest")
    cells = st.lists(st.integers(0, largest), min_size=tokens**2, max_size=tokens**2)
    fixed = np.tril(np.reshape(data.draw(cells, label="cells"), (tokens, tokens)))
    prefill = data.draw(st.integers(0, tokens), label="prefill")
    budget = data.draw(st.integers(1, tokens), label="budget")
    interval = optimum_interval(fixed, budget, prefill=prefill, steps=5)
    value = optimum_curve(fixed, budget, prefill=prefill).values[-1]
    assert_proved(fixed, interval, value)


@pytest.mark.parametrize("budget", [15, 60])
def test_the_gap_is_small_on_soft_attention(budget):
    fixed = to_fixed_point(softmax_rows(300, 2))
    interval = optimum_interval(fixed, budget)
    assert interval.status == "finished" and interval.steps == 60
    assert interval.relative_gap < 0.002
    start = optimum_interval(fixed, budget, steps=0)
    assert interval.upper < start.upper and interval.lower > start.lower


def test_floats_are_rounded_as_fixed_point_is():
    rows = softmax_rows(90, 4)
    fixed = to_fixed_point(rows)
    from_floats, from_fixed = optimum_interval(rows, 12), optimum_interval(fixed, 12)
    assert (from_floats.lower, from_floats.upper) == (from_fixed.lower, from_fixed.upper)
    single = rows.astype(np.float32)
    assert_proved(
        to_fixed_point(single), optimum_interval(single, 12), optimum_curve(fixed, 12).values[-1]
    )


def test_masses_are_per_scored_row():
    rows = softmax_rows(50, 1)
    interval = optimum_interval(rows, 10, prefill=20)
    unit = UNITS * 30
    assert interval.retained_mass == (interval.lower / unit, interval.upper / unit)
    assert interval.fraction_bits == FRACTION_BITS
    assert interval.relative_gap == interval.gap / interval.upper
    everything = optimum_interval(rows, 10, prefill=50)
    assert np.isnan(everything.retained_mass).all() and everything.relative_gap == 0.0


def test_a_time_limit_stops_the_steps_but_not_the_proof():
    fixed = to_fixed_point(softmax_rows(400, 3))
    optimum = optimum_curve(fixed, 20).values[-1]
    stopped = optimum_interval(fixed, 20, steps=10_000_000, time_limit=0.2)
    assert stopped.status == "time limit" and 0 < stopped.steps < 10_000_000
    assert_proved(fixed, stopped, optimum)
    at_once = optimum_interval(fixed, 20, time_limit=0)
    assert at_once.status == "time limit" and at_once.steps == 0
    assert at_once.upper == optimum_interval(fixed, 20, steps=0).upper
    assert_proved(fixed, at_once, optimum)
    assert "0 subgradient steps" in at_once.method


def test_easy_cases_are_proved_optimal():
    fixed = to_fixed_point(softmax_rows(40, 5))
    full, alone = optimum_interval(fixed, 40), optimum_interval(fixed, 1)
    assert full.status == alone.status == "optimal"
    assert full.lower == fixed.sum() and alone.lower == np.trace(fixed)
    assert optimum_interval(np.zeros((5, 5), dtype=np.int64), 2).status == "optimal"


def test_refuses_unusable_input():
    rows = softmax_rows(10, 1)
    with pytest.raises(BadBudget, match="budget"):
        optimum_interval(rows, 11)
    with pytest.raises(OutOfRange, match="prefill"):
        optimum_interval(rows, 2, prefill=-1)
    with pytest.raises(BadArgument, match="steps.*at least 0"):
        optimum_interval(rows, 2, steps=-1)
    for limit in (-1, "soon", True, float("nan")):
        with pytest.raises(BadArgument, match="time_limit must be"):
            optimum_interval(rows, 2, time_limit=limit)
    with pytest.raises(InvalidAttention, match="finite"):
        optimum_interval(np.full((3, 3), np.nan), 2)
    with pytest.raises(InvalidAttention, match="causal"):
        optimum_interval(np.ones((3, 3), dtype=np.float32), 2)
    with pytest.raises(BadArgument, match="attention matrix"):
        optimum_interval(np.ones(3), 2)
