"""Budget rules: what they give every kv_head, and that the total is exact."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import reference

import h2o_theory as ht
from h2o_theory.budgets import AdaKV, PyramidKV
from h2o_theory.budgets.rules import apportion
from h2o_theory.errors import BadArgument, BadBudget
from h2o_theory.report import summary_table
from h2o_theory.trace import Trace


def trace_of(layers=4, q_heads=4, kv_heads=2, tokens=60, sharpness=2.0):
    rng = np.random.default_rng(0)
    rows = [reference.softmax_rows(rng, q_heads, tokens, sharpness) for _ in range(layers)]
    return Trace.from_attention(np.stack(rows), kv_heads=kv_heads)


def test_apportion_is_exact_within_its_bounds():
    rng = np.random.default_rng(1)
    for _ in range(300):
        n = int(rng.integers(1, 9))
        shares = [Fraction(int(x), 7) for x in rng.integers(0, 30, size=n)]
        total = int(rng.integers(n, 12 * n + 1))
        found = apportion(shares, total, 1, 12)
        assert sum(found) == total and 1 <= min(found) and max(found) <= 12
        pairs = sorted(zip(shares, found, strict=True), key=lambda pair: pair[0])
        assert all(a[1] <= b[1] + (a[0] == b[0]) for a, b in itertools.pairwise(pairs))


def test_apportion_keeps_whole_shares_as_they_are():
    assert apportion([3, 1, 2], 6, 1, 6) == [3, 1, 2]
    assert apportion([1, 1, 1], 5, 1, 9) == [2, 2, 1]
    assert apportion([0, 0], 4, 1, 9) == [2, 2]
    assert apportion([100, 1, 1], 12, 1, 6) == [6, 3, 3]


@pytest.mark.parametrize("budget", [1, 2, 9, "20%", 59, 60])
def test_pyramid_falls_and_sums_to_the_total(budget):
    trace = trace_of()
    budgets = PyramidKV(budget)(trace)
    k = 12 if budget == "20%" else budget
    assert sum(budgets.values()) == 8 * k
    assert all(1 <= b <= 60 for b in budgets.values())
    by_layer = [sum(budgets[layer, head] for head in range(2)) for layer in range(4)]
    assert by_layer == sorted(by_layer, reverse=True)
    assert by_layer[0] > by_layer[-1] or budget in (1, 60)


def test_pyramid_is_the_formula_where_it_divides():
    budgets = PyramidKV(29, window=8, beta=20)(trace_of(layers=3))
    # 29 = 9 kept + 20; the last layer gets 20 / 20 = 1 besides, the first 39, the middle 20.
    assert [budgets[layer, 0] for layer in range(3)] == [48, 29, 10]


def test_pyramid_of_one_layer_is_uniform():
    assert set(PyramidKV(7)(trace_of(layers=1)).values()) == {7}


def test_ada_gives_more_to_the_head_with_more_of_the_best_scores():
    rng = np.random.default_rng(2)
    flat = reference.softmax_rows(rng, 1, 60, sharpness=0.1)
    sharp = reference.softmax_rows(rng, 1, 60, sharpness=4.0)
    trace = Trace.from_attention(np.concatenate([flat, sharp])[None], kv_heads=2)
    budgets = AdaKV(12, window=3, kernel=1, alpha=0.0)(trace, 30)
    scores = [trace.rows(0, head, 27, 30).mean(axis=0).sum(axis=0)[:27] for head in range(2)]
    pooled = sorted([(s, h) for h in range(2) for s in scores[h]], reverse=True)[:16]
    won = [sum(h == head for _, h in pooled) for head in range(2)]
    assert [budgets[0, head] for head in range(2)] == [4 + won[0], 4 + won[1]]
    assert budgets[0, 0] != budgets[0, 1]
    assert set(AdaKV(12, alpha=1.0)(trace, 30).values()) == {12}


@pytest.mark.parametrize("budget", [1, 2, 5, 20, 60])
def test_ada_sums_to_the_total(budget):
    trace = trace_of()
    budgets = AdaKV(budget)(trace, 40)
    for layer in range(4):
        assert sum(budgets[layer, head] for head in range(2)) == 2 * budget
    assert min(budgets.values()) >= 1 and max(budgets.values()) <= 60


def test_rules_refuse_what_they_cannot_use():
    with pytest.raises(BadBudget, match="prompt longer"):
        AdaKV(20)(trace_of(), 0)
    with pytest.raises(BadBudget):
        PyramidKV("many")
    with pytest.raises(BadArgument, match="beta"):
        PyramidKV(20, beta=1)
    with pytest.raises(BadArgument, match="kernel"):
        AdaKV(20, kernel=4)


def test_a_rule_in_a_replay_gives_every_head_its_own_budget():
    trace = trace_of()
    table = ht.replay(trace, "snapkv,optimum", [PyramidKV(9), AdaKV(9)], prefill=20)
    for rule, found in ((PyramidKV(9), PyramidKV(9)(trace)), (AdaKV(9), AdaKV(9)(trace, 20))):
        cells = table[table.budget == rule.__name__].set_index(["layer", "kv_head"])
        assert cells.budget_tokens.to_dict() == found
        assert (cells.realised_budget_max == cells.budget_tokens).all()
    summary = summary_table(table)
    assert len(summary) == 4 and (summary.budget_tokens == 9).all() and (summary.heads == 8).all()
