"""Protected windows and sinks, and groups of query heads, against brute force."""

from functools import cache
from itertools import combinations

import numpy as np
import pytest
from optimum_referees import softmax_rows, tied_rows

from h2o_theory.errors import BadArgument, BadBudget, InvalidAttention
from h2o_theory.optimum import check_certificate, optimum_at, optimum_curve, protect, to_fixed_point


def protected_brute_force(heads, budget, prefill=0, n_sink=0, n_recent=1):
    """Best total over all query heads [G, T, T] when sinks and the recent window must stay."""
    tokens = heads.shape[1]

    def choices(t, visible):
        """Sets that row t may leave behind: all that row t + 1 sees but its own entry."""
        must = {j for j in visible if j < n_sink or j > t + 1 - n_recent}
        free = sorted(visible - must)
        for size in range(min(budget - 1 - len(must), len(free)) + 1):
            yield from (frozenset(must | set(chosen)) for chosen in combinations(free, size))

    @cache
    def best_from(t, retained):
        if t == tokens:
            return 0
        visible = retained | {t}
        seen = sum(int(heads[g, t, j]) for g in range(len(heads)) for j in visible)
        return seen + max((best_from(t + 1, kept) for kept in choices(t, visible)), default=0)

    if prefill == 0:
        return best_from(0, frozenset())
    return max(best_from(prefill, kept) for kept in choices(prefill - 1, set(range(prefill))))


def assert_protected(evicted_at, budget, prefill, n_sink, n_recent):
    tokens = len(evicted_at)
    for t in range(prefill, tokens):
        visible = {j for j in range(t + 1) if evicted_at[j] >= t}
        assert len(visible) <= budget
        assert visible >= {j for j in range(t + 1) if j < n_sink or j > t - n_recent}
        full = len(visible) == budget
        leaving = [j for j in visible if evicted_at[j] == t]
        assert len(leaving) == (1 if full and t < tokens - 1 else 0)


@pytest.mark.parametrize("rows", [softmax_rows, tied_rows])
@pytest.mark.parametrize(
    "n_sink, n_recent", [(0, 1), (0, 2), (0, 4), (1, 1), (2, 1), (1, 2), (2, 3)]
)
def test_protection_equals_brute_force(rows, n_sink, n_recent):
    fixed = to_fixed_point(rows(6, 3))
    problem = protect(fixed, n_sink=n_sink, n_recent=n_recent)
    assert problem.reserved == n_sink + n_recent - 1
    for prefill in range(7):
        for budget in range(n_sink + n_recent, 7):
            best = protected_brute_force(fixed[None], budget, prefill, n_sink, n_recent)
            reduced = optimum_at(problem.fixed, problem.reduced_budget(budget), prefill=prefill)
            assert reduced.value == best
            assert check_certificate(problem.fixed, reduced).optimal
            schedule = problem.original(reduced)
            assert (schedule.budget, schedule.prefill) == (budget, prefill)
            found = check_certificate(fixed, schedule)
            assert found.feasible and found.value == schedule.value == best
            assert_protected(schedule.evicted_at, budget, prefill, n_sink, n_recent)


def test_protection_on_a_longer_head():
    fixed = to_fixed_point(softmax_rows(150, 6))
    free = optimum_curve(fixed, 40).values
    problem = protect(fixed, n_sink=3, n_recent=9)
    curve = optimum_curve(problem.fixed, problem.reduced_budget(40), budgets=[10])
    assert (curve.values <= free[problem.reserved :]).all()
    assert curve.values[9] < free[problem.reserved + 9]
    schedule = problem.original(curve.schedules[10])
    assert schedule.budget == 21 and schedule.value == curve.values[9]
    assert_protected(schedule.evicted_at, 21, 0, 3, 9)
    assert check_certificate(fixed, schedule).value == schedule.value


def test_protecting_nothing_changes_nothing():
    fixed = to_fixed_point(softmax_rows(30, 6))
    problem = protect(fixed)
    assert (problem.fixed == fixed).all() and problem.reduced_budget(7) == 7
    assert problem.original(optimum_at(fixed, 7)).value == optimum_at(fixed, 7).value


def test_protecting_everything_is_the_full_cache_or_the_window():
    fixed = to_fixed_point(softmax_rows(20, 6))
    window = protect(fixed, n_recent=5)
    seen = sum(int(fixed[t, max(t - 4, 0) : t + 1].sum()) for t in range(20))
    assert optimum_at(window.fixed, window.reduced_budget(5)).value == seen
    full = protect(fixed, n_sink=8, n_recent=12)
    assert optimum_at(full.fixed, full.reduced_budget(20)).value == fixed.sum()


@pytest.mark.parametrize("group", [1, 2, 3])
def test_a_group_of_query_heads_is_its_sum_of_rows(group):
    rng = np.random.default_rng(group)
    heads = np.tril(rng.integers(0, 2**30, (group, 6, 6)))
    for budget in range(1, 7):
        expected = protected_brute_force(heads, budget)
        assert optimum_at(heads.sum(axis=0), budget).value == expected


def test_refuses_unusable_protection():
    fixed = to_fixed_point(softmax_rows(10, 1))
    problem = protect(fixed, n_sink=2, n_recent=3)
    for budget in (4, 11, 0):
        with pytest.raises(BadBudget, match="above n_sink"):
            problem.reduced_budget(budget)
    with pytest.raises(BadArgument, match="n_sink"):
        protect(fixed, n_sink=-1)
    with pytest.raises(BadArgument, match="n_recent"):
        protect(fixed, n_recent=0)
    with pytest.raises(BadArgument, match="whole number"):
        protect(fixed, n_recent=1.5)
    with pytest.raises(BadArgument, match="no more tokens to protect"):
        protect(fixed, n_sink=5, n_recent=6)
    with pytest.raises(InvalidAttention, match="causal"):
        protect(np.ones((4, 4), dtype=np.int64))
