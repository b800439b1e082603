"""One budget for many heads: the static split against exhaustion, the pool against HiGHS."""

from itertools import product

import numpy as np
import pytest
from optimum_referees import softmax_rows, tied_rows
from scipy.optimize import linprog

from h2o_theory.errors import BadArgument, BadBudget, InvalidAttention, OutOfRange
from h2o_theory.optimum import (
    FRACTION_BITS,
    UNITS,
    optimum_at,
    optimum_curve,
    pooled_bound,
    split_budget,
    to_fixed_point,
)


def some_heads(number, tokens, seed=0):
    """Heads that need different budgets: rows of different sharpness, ties in the last."""
    heads = []
    for h in range(number):
        rows = softmax_rows(tokens, seed + h) ** (1 + h / 2)
        heads.append(to_fixed_point(rows / rows.sum(axis=1, keepdims=True)))
    heads[-1] = to_fixed_point(tied_rows(tokens, seed))
    return heads


def pooled_by_highs(heads, total, prefill=0):
    """The linear programme of heads with one pool: x[h, t, j] = 1 when row t sees older key j."""
    tokens, first = len(heads[0]), max(prefill, 1)
    number = {}
    for h, t in product(range(len(heads)), range(first, tokens)):
        for j in range(t):
            number[h, t, j] = len(number)
    matrix, limit = [], []
    for t in range(first, tokens):
        row = np.zeros(len(number))
        row[[at for (_, step, _), at in number.items() if step == t]] = 1
        matrix.append(row)
        limit.append(total - len(heads))
    for (h, t, j), at in number.items():
        if (h, t - 1, j) in number:
            row = np.zeros(len(number))
            row[at], row[number[h, t - 1, j]] = 1, -1
            matrix.append(row)
            limit.append(0)
    worth = np.array([int(heads[h][t, j]) for h, t, j in number]) / UNITS
    result = linprog(-worth, A_ub=np.array(matrix), b_ub=limit, bounds=(0, 1), method="highs")
    assert result.status == 0, result.message
    own = sum(int(head.diagonal()[prefill:].sum()) for head in heads)
    return own / UNITS - result.fun


@pytest.mark.parametrize("prefill", [0, 3])
def test_equals_every_split_tried(prefill):
    heads = some_heads(3, 8)
    curves = [optimum_curve(head, 8, prefill=prefill) for head in heads]
    best = {}
    for budgets in product(range(1, 9), repeat=3):
        value = sum(int(c.values[k - 1]) for c, k in zip(curves, budgets, strict=True))
        best[sum(budgets)] = max(best.get(sum(budgets), 0), value)
    for total in range(3, 25):
        split = split_budget(curves, total)
        assert split.exact and split.limited == ()
        assert split.value == best[total]
        assert split.budgets.sum() == total and (split.budgets >= 1).all()
        for head, k, value in zip(heads, split.budgets, split.values, strict=True):
            assert optimum_at(head, k, prefill=prefill).value == value


def test_is_no_worse_than_the_even_split_and_than_less():
    curves = [optimum_curve(head, 40) for head in some_heads(5, 40)]
    values = []
    for total in range(5, 200, 7):
        split = split_budget(curves, total)
        assert split.uniform_budgets.sum() == total
        assert np.ptp(split.uniform_budgets) <= 1
        assert split.value >= split.uniform_value
        values.append(split.value)
    assert values == sorted(values)
    assert split_budget(curves, 60).value > split_budget(curves, 60).uniform_value


def test_prices_and_masses():
    curves = [optimum_curve(head, 20, prefill=4) for head in some_heads(3, 20)]
    split, more = split_budget(curves, 21), split_budget(curves, 22)
    assert split.price >= more.value - split.value == more.price
    assert split.n_scored == 48 and split.fraction_bits == FRACTION_BITS
    unit = 48 * UNITS
    assert split.retained_mass == (split.uniform_value / unit, split.value / unit)
    least = split_budget(curves, 3)
    assert least.budgets.tolist() == [1, 1, 1] and least.exact
    assert least.price == max(curve.gains[0] for curve in curves)


def test_equal_gains_go_to_the_first_heads():
    head = to_fixed_point(softmax_rows(12, 1))
    split = split_budget([optimum_curve(head, 12)] * 3, 10)
    assert split.budgets.tolist() == [4, 3, 3]
    assert split.value == split.uniform_value


def test_says_where_a_curve_was_too_short():
    heads = some_heads(3, 30)
    whole = [optimum_curve(head, 30) for head in heads]
    wanted = split_budget(whole, 36)
    longest = int(wanted.budgets.argmax())
    short = list(whole)
    short[longest] = optimum_curve(heads[longest], int(wanted.budgets[longest]) - 2)
    split = split_budget(short, 36)
    assert split.limited == (longest,) and not split.exact
    assert split.value < wanted.value
    short[longest] = optimum_curve(heads[longest], 5)
    with pytest.raises(BadBudget, match="too short for the even split"):
        split_budget(short, 36)


def test_heads_of_different_lengths():
    curves = [optimum_curve(to_fixed_point(softmax_rows(n, n)), n) for n in (6, 30)]
    split = split_budget(curves, 30)
    assert split.uniform_budgets.tolist() == [6, 15]
    assert split_budget(curves, 36).value == sum(int(curve.values[-1]) for curve in curves)


@pytest.mark.parametrize("prefill", [0, 4])
@pytest.mark.parametrize("total", [3, 7, 12, 20])
def test_pool_bounds_the_pool_and_every_split(total, prefill):
    heads = some_heads(3, 10)
    bound = pooled_bound(heads, total, prefill=prefill, steps=300)
    exact = pooled_by_highs(heads, total, prefill)
    upper = bound.upper / UNITS
    assert exact - 1e-6 <= upper <= exact * 1.02
    split = split_budget([optimum_curve(head, 10, prefill=prefill) for head in heads], total)
    assert bound.upper >= split.value
    assert (bound.prices >= 0).all() and bound.prices.size == 10 - max(prefill, 1)
    assert bound.n_scored == split.n_scored == 3 * (10 - prefill)
    assert bound.retained_mass == pytest.approx(upper / bound.n_scored)


def test_pool_of_one_head_is_its_dual_bound():
    head = to_fixed_point(softmax_rows(200, 3))
    bound, optimum = pooled_bound([head], 30), optimum_at(head, 30).value
    assert optimum <= bound.upper <= optimum * 1.001
    assert bound.upper <= pooled_bound([head], 30, steps=0).upper
    assert pooled_bound([head], 1).upper == np.trace(head)
    assert pooled_bound([head], 200).upper == head.sum()


def test_pool_reads_floats_as_fixed_point():
    rows = np.stack([softmax_rows(40, seed) for seed in range(3)])
    fixed = [to_fixed_point(head) for head in rows]
    assert pooled_bound(rows, 30).upper == pooled_bound(fixed, 30).upper
    single = rows.astype(np.float32)
    exact = [to_fixed_point(head) for head in single]
    assert pooled_bound(single, 30).upper == pooled_bound(exact, 30).upper


def test_pool_stops_at_a_time_limit_with_a_valid_bound():
    heads = some_heads(4, 100)
    stopped = pooled_bound(heads, 60, steps=10_000_000, time_limit=0.1)
    assert stopped.status == "time limit" and stopped.steps < 10_000_000
    curves = [optimum_curve(head, 57) for head in heads]
    assert stopped.upper >= split_budget(curves, 60).value
    assert pooled_bound(heads, 60, steps=3).status == "finished"
    assert pooled_bound(heads, 60, prefill=100).upper == 0


def test_refuses_unusable_input():
    head = to_fixed_point(softmax_rows(10, 1))
    curves = [optimum_curve(head, 10)] * 2
    for total in (1, 21):
        with pytest.raises(BadBudget, match="total"):
            split_budget(curves, total)
        with pytest.raises(BadBudget, match="total"):
            pooled_bound([head, head], total)
    with pytest.raises(BadArgument, match="budget curves"):
        split_budget([], 1)
    with pytest.raises(BadArgument, match="budget curves"):
        split_budget([head], 1)
    with pytest.raises(BadArgument, match="one length"):
        pooled_bound([head, head[:5, :5]], 4)
    with pytest.raises(BadArgument, match="no heads"):
        pooled_bound([], 4)
    with pytest.raises(OutOfRange, match="prefill"):
        pooled_bound([head], 4, prefill=11)
    with pytest.raises(BadArgument, match="steps"):
        pooled_bound([head], 4, steps=-1)
    with pytest.raises(InvalidAttention, match="heads"):
        pooled_bound([np.ones((3, 3))], 2)
