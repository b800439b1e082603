"""Concave row objectives: brute force, exact programmes and bounds must be consistent."""

import sys
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optimum_referees import softmax_rows, tied_rows

from h2o_theory.errors import BadArgument, BadBudget, MissingDependency, OutOfRange
from h2o_theory.optimum import (
    UNITS,
    Shape,
    capped,
    concave_interval,
    concave_optimum,
    concave_upper,
    log_saturation,
    optimum_at,
    square_root,
    to_fixed_point,
)

SHAPES = [square_root(), log_saturation(20.0), log_saturation(1.0), capped(0.8), capped(0.3)]
LINEAR = Shape("linear", lambda m: m, np.ones_like, lambda s: np.where(s < 1.0, np.inf, 0.0))


def brute_force_concave(rows, budget, h, prefill=0):
    """Best total over every choice of every retained set. T <= 7."""
    tokens = len(rows)

    def choices(visible):
        for size in range(min(budget - 1, len(visible)) + 1):
            yield from map(frozenset, combinations(sorted(visible), size))

    @cache
    def best_from(t, retained):
        if t == tokens:
            return 0.0
        visible = retained | {t}
        worth = float(h(np.array([sum(rows[t, j] for j in visible)]))[0])
        return worth + max(best_from(t + 1, kept) for kept in choices(visible))

    return max(best_from(prefill, kept) for kept in choices(frozenset(range(prefill))))


def objective(rows, evicted_at, budget, h, prefill=0):
    """Total of a schedule, entry by entry; it has to fit the budget."""
    total = 0.0
    for t in range(prefill, len(rows)):
        visible = [j for j in range(t + 1) if evicted_at[j] >= t]
        assert len(visible) <= budget
        total += float(h(np.array([sum(rows[t, j] for j in visible)]))[0])
    assert (evicted_at >= np.maximum(np.arange(len(rows)), prefill - 1)).all()
    return total


def assert_interval(rows, result, h, optimum):
    reached = objective(rows, result.evicted_at, result.budget, h, result.prefill)
    assert result.lower == pytest.approx(reached, rel=1e-9)
    assert result.lower <= optimum + 1e-6 and result.upper >= optimum - 1e-6
    assert result.gap == result.upper - result.lower >= 0
    assert result.relative_gap == (result.gap / result.upper if result.upper else 0.0)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_lines_lie_above_the_function(data):
    shape = data.draw(st.sampled_from([*SHAPES, LINEAR]), label="shape")
    most = data.draw(st.floats(0.0, 3.0), label="row mass")
    slope = data.draw(st.floats(0.0, 30.0), label="slope")
    mass = np.linspace(0.0, most, 200)
    above = shape.intercept(np.array([slope]), np.array([most])) + slope * mass
    assert (shape.value(mass) <= above + 1e-12).all()
    at = data.draw(st.floats(1e-5, 1.0), label="mass") * most
    touching = shape.slope(np.array([at]))
    line = shape.intercept(touching, np.array([most])) + touching * at
    assert line[0] == pytest.approx(shape.value(np.array([at]))[0], abs=1e-3)
    assert touching[0] >= 0


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@pytest.mark.parametrize("rows", [softmax_rows, tied_rows])
def test_both_hold_the_optimum_of_brute_force(shape, rows):
    rows = rows(6, 4)
    for prefill, budget in [(0, 1), (0, 2), (0, 3), (0, 6), (3, 2), (6, 2)]:
        optimum = brute_force_concave(rows, budget, shape.value, prefill)
        exact = concave_optimum(rows, budget, shape, prefill=prefill)
        assert_interval(rows, exact, shape.value, optimum)
        if rows.diagonal().all():
            assert exact.status == "optimal" and exact.lower == pytest.approx(optimum, abs=1e-5)
        bounds = concave_interval(rows, budget, shape, prefill=prefill)
        assert_interval(rows, bounds, shape.value, optimum)
        assert (bounds.budget, bounds.prefill, bounds.shape) == (budget, prefill, shape.name)


@pytest.mark.parametrize("shape", [square_root(), log_saturation(), capped(0.7)])
def test_frank_wolfe_comes_close_to_the_exact_optimum(shape):
    rows = softmax_rows(30, 8)
    exact = concave_optimum(rows, 6, shape)
    bounds = concave_interval(rows, 6, shape)
    assert exact.status == "optimal" and exact.slopes is None
    assert_interval(rows, bounds, shape.value, exact.lower)
    assert bounds.relative_gap < 0.01
    upper, _ = concave_upper(rows, 6, shape, bounds.slopes)
    assert max(upper, bounds.lower) == bounds.upper


def test_the_gap_is_small_on_longer_heads():
    rows = softmax_rows(256, 2)
    for shape in (square_root(), log_saturation(), capped(0.8)):
        bounds = concave_interval(rows, 25, shape)
        assert bounds.relative_gap < 0.001
        assert bounds.lower == pytest.approx(
            objective(rows, bounds.evicted_at, 25, shape.value), rel=1e-9
        )


def test_a_linear_function_is_retained_mass():
    rows = softmax_rows(40, 3)
    mass = optimum_at(to_fixed_point(rows), 8).value / UNITS
    bounds = concave_interval(rows, 8, LINEAR, rounds=1)
    assert bounds.status == "optimal"
    assert bounds.lower == pytest.approx(mass, abs=1e-6) and bounds.upper >= mass - 1e-6
    assert concave_optimum(rows[:12, :12], 3, LINEAR).status == "optimal"


def test_covering_a_universe_is_a_special_case():
    # Tokens are sets, rows are elements spread over the sets that hold them: keeping two of four
    # sets covers at most six of seven elements.
    sets = [{0, 1, 2}, {2, 3}, {3, 4, 5}, {0, 5, 6}]
    rows = np.eye(11)
    for element in range(7):
        holders = [j for j, members in enumerate(sets) if element in members]
        rows[4 + element] = 0.0
        rows[4 + element, holders] = 1 / len(holders)
    covered = max(len(sets[i] | sets[j]) for i, j in combinations(range(4), 2))
    exact = concave_optimum(rows, 3, capped(0.25))
    # A row that sees one of its holders is served, and so are the first four by themselves.
    assert exact.status == "optimal"
    assert exact.lower == pytest.approx((4 + covered) * 0.25)


def test_time_limits_return_what_was_proved():
    rows = softmax_rows(60, 5)
    at_once = concave_optimum(rows, 12, capped(0.7), time_limit=0)
    assert at_once.status == "time limit" and at_once.rounds == 0
    optimum = concave_interval(rows, 12, capped(0.7), rounds=100)
    assert at_once.lower <= optimum.upper and optimum.lower <= at_once.upper
    short = concave_optimum(rows, 12, capped(0.7), time_limit=0.05)
    assert short.lower <= optimum.upper and optimum.lower <= short.upper + 1e-6
    stopped = concave_interval(rows, 12, capped(0.7), rounds=10_000_000, time_limit=0.05)
    assert 1 <= stopped.rounds < 10_000_000
    assert stopped.status in ("time limit", "optimal")
    assert stopped.lower <= optimum.upper and optimum.lower <= stopped.upper


def test_without_scipy_the_exact_programme_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(MissingDependency, match="scipy"):
        concave_optimum(softmax_rows(6, 1), 2, square_root())
    assert concave_interval(softmax_rows(6, 1), 2, square_root()).lower > 0


def test_refuses_unusable_input():
    rows = softmax_rows(6, 1)
    with pytest.raises(BadArgument, match="must be a Shape"):
        concave_interval(rows, 2, np.sqrt)
    with pytest.raises(BadArgument, match="must be a Shape"):
        concave_optimum(rows, 2, "sqrt")
    with pytest.raises(BadArgument, match="rounds"):
        concave_interval(rows, 2, square_root(), rounds=0)
    with pytest.raises(BadBudget, match="budget"):
        concave_optimum(rows, 7, square_root())
    with pytest.raises(OutOfRange, match="prefill"):
        concave_interval(rows, 2, square_root(), prefill=7)
    for slopes in (np.ones(5), -np.ones(6), np.full(6, np.inf)):
        with pytest.raises(BadArgument, match="slopes"):
            concave_upper(rows, 2, square_root(), slopes)
    for number in (0, -1.0, float("inf"), "1"):
        with pytest.raises(BadArgument, match="positive number"):
            capped(number)
        with pytest.raises(BadArgument, match="positive number"):
            log_saturation(number)
