"""The optimum of a whole trace: proved head by head, and split over heads as well as can be."""

import json
from itertools import product

import numpy as np
import pytest
import reference

import h2o_theory as ht
from h2o_theory.cli import main
from h2o_theory.engine import certified, ratio_intervals
from h2o_theory.optimum import FRACTION_BITS, optimum_curve, to_fixed_point
from h2o_theory.trace import Trace

TOKENS = 13


@pytest.fixture(scope="module")
def trace():
    rng = np.random.default_rng(5)
    rows = np.stack([reference.softmax_rows(rng, 4, TOKENS) for _ in range(2)])
    return Trace.from_attention(rows, kv_heads=2, model={"id": "made-up"}, layers=[1, 4])


def curve(trace, layer, kv_head, prefill=0):
    fixed = to_fixed_point(trace.rows(layer, kv_head).mean(axis=0))
    return optimum_curve(fixed, TOKENS, prefill=prefill)


@pytest.mark.parametrize("prefill", [0, 4])
def test_every_head_is_proved_and_agrees_with_the_replay(trace, prefill):
    found = ht.certified_optimum(trace, [1, 4, "50%", TOKENS], prefill=prefill)
    replayed = ht.replay(trace, "optimum", [1, 4, "50%", TOKENS], prefill=prefill)
    assert (found.heads.certificate == "optimal").all() and (found.heads.gap == 0).all()
    assert np.allclose(found.heads.optimum_mass, replayed.optimum_mass, atol=1e-12)
    assert (found.heads.budget_tokens == replayed.budget_tokens).all()
    for row in found.heads.itertuples():
        exact = curve(trace, row.layer, row.kv_head, prefill)
        assert row.value == exact.values[row.budget_tokens - 1]
        if row.budget_tokens < TOKENS:
            more = exact.values[row.budget_tokens] - row.value
            assert more <= row.slot_price * row.n_rows * 2**FRACTION_BITS + 1


@pytest.mark.parametrize("seed", range(8))
def test_no_split_exceeds_the_pooled_bound_though_its_rows_are_rounded(seed):
    """The pool reads rows in float32; what the rounding takes from them is added to its bound."""
    rng = np.random.default_rng(seed)
    rows = np.stack([reference.softmax_rows(rng, 1, TOKENS)])
    made = Trace.from_attention(rows, kv_heads=1, model={"id": "made-up"})
    found = ht.certified_optimum(made, [1, 2, 6, TOKENS])
    assert (found.splits.split_mass <= found.splits.pooled_mass).all()


@pytest.mark.parametrize("budget", [1, 2, 5])
def test_the_split_is_the_best_of_all_splits(trace, budget):
    found = ht.certified_optimum(trace, budget)
    curves = [curve(trace, *head).values for head in product([1, 4], [0, 1])]
    total = 4 * budget
    best = max(
        sum(int(values[k - 1]) for values, k in zip(curves, ks, strict=True))
        for ks in product(range(1, TOKENS + 1), repeat=4)
        if sum(ks) == total
    )
    (split,) = found.splits.itertuples()
    mass = best / 2**FRACTION_BITS / (4 * TOKENS)
    assert split.split_mass == pytest.approx(mass, abs=1e-12)
    assert split.even_mass <= split.split_mass <= split.pooled_mass
    assert found.allocation.split_tokens.sum() == found.allocation.even_tokens.sum() == total
    assert found.allocation.split_mass.mean() == pytest.approx(split.split_mass, abs=1e-12)


def test_curves_grow_where_a_head_wants_more_than_twice_the_budget():
    """One head spreads its attention evenly, two look at themselves alone."""
    even = np.tril(np.ones((TOKENS, TOKENS))) / np.arange(1, TOKENS + 1)[:, None]
    trace = Trace.from_attention(np.stack([even, np.eye(TOKENS), np.eye(TOKENS)])[None])
    found = ht.certified_optimum(trace, 4)
    assert found.allocation.split_tokens.tolist() == [10, 1, 1]
    assert [curve.values.size for curve in found.curves.values()] == [TOKENS, 8, 8]


def test_pooled_bound_is_left_out_where_it_would_not_fit(trace, monkeypatch):
    monkeypatch.setattr(certified, "POOL_BYTES", 4 * 4 * TOKENS**2 - 1)
    assert ht.certified_optimum(trace, 3).splits.pooled_mass.isna().all()
    assert ht.certified_optimum(trace, 3, pooled=False).splits.pooled_mass.isna().all()


@pytest.mark.parametrize("limit", [None, 0])
def test_interval_holds_the_optimum(trace, limit):
    exact = ht.certified_optimum(trace, "30%,60%").heads
    found = ht.certified_interval(trace, "30%,60%", time_limit=limit)
    assert (found.optimum_mass <= exact.optimum_mass + 1e-7).all()
    assert (found.bound_mass >= exact.optimum_mass - 1e-7).all()
    assert (found.gap >= 0).all() and set(found.certificate) <= {
        "optimal",
        "finished" if limit is None else "time limit",
    }


@pytest.mark.parametrize("prefill", [0, 4])
def test_intervals_of_ratios_hold_the_ratios(trace, prefill):
    names, budgets = "full,recent,h2o,belady", [1, "50%", 6, TOKENS]
    exact = ht.replay(trace, names, budgets, prefill=prefill)
    plain = ht.replay(trace, names, budgets, prefill=prefill, optimum=False)
    heads = ht.certified_interval(trace, budgets, prefill=prefill, time_limit=0)
    key = ["layer", "kv_head", "policy", "budget"]
    found = ratio_intervals(plain, heads).set_index(key)
    assert len(found) == 4 * 3 * 4  # the full cache has another budget: no ratio
    exact = exact.set_index(key).loc[found.index]
    ratio, lost = exact.approximation_ratio, exact.lost_mass_ratio
    assert (found.ratio_least <= ratio).all() and (ratio <= found.ratio_most + 1e-12).all()
    # At a budget of T nothing is lost, and at 1 by all alike.
    known = found.lost_ratio_most.notna()
    assert (found.lost_ratio_least[known] <= lost[known] + 1e-9).all()
    assert (lost[known] <= found.lost_ratio_most[known] + 1e-9).all()
    assert known[found.budget_tokens < TOKENS].all() and (found.ratio_most <= 1).all()
    wide = found.ratio_most - found.ratio_least
    assert 0 < wide.max() < 0.2


BAD = {
    "prefill": ({"prefill": TOKENS}, ht.errors.OutOfRange),
    "layer": ({"layers": [0]}, ht.errors.OutOfRange),
    "kv_head": ({"kv_heads": [2]}, ht.errors.OutOfRange),
    "nothing": ({"layers": []}, ht.errors.BadArgument),
    "workers": ({"workers": 0}, ht.errors.BadArgument),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("function", [ht.certified_optimum, ht.certified_interval])
def test_refusals(trace, case, function):
    arguments, error = BAD[case]
    with pytest.raises(error):
        function(trace, "10%", **arguments)


def test_command(trace, tmp_path, capsys):
    path, out = str(trace.save(tmp_path / "small.trace")), tmp_path / "out"
    arguments = ["optimum", path, "--budget", "3,6", "--policy", "h2o,lru"]
    assert main([*arguments, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "4 of 4" in printed and "h2o" in printed and "split_mass" in printed
    assert {item.name for item in out.iterdir()} == {
        "heads.csv", "splits.csv", "allocation.csv", "policies.csv", "split.png",
    }  # fmt: skip
    assert main([*arguments, "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)
    assert {row["certificate"] for row in tables["heads"]} == {"optimal"}
    assert all(0 < row["mean_ratio"] <= 1 for row in tables["policies"])
    assert main([*arguments, "--out", str(out)]) == 2
    assert "OutputExists" in capsys.readouterr().err
    assert main(["optimum", path, "--time-limit", "1"]) == 2
    assert "--interval" in capsys.readouterr().err
    assert main(["optimum", path, "--interval", "--budget", "3", "--policy", "none"]) == 0
    assert "bound" in capsys.readouterr().out
    interval = ["optimum", path, "--interval", "--budget", "3,6", "--policy", "h2o,lru", "--json"]
    assert main(interval) == 0
    bounds = json.loads(capsys.readouterr().out)["policies"]
    for row, exact in zip(bounds, tables["policies"], strict=True):
        assert row["policy"] == exact["policy"] and row["budget_tokens"] == exact["budget_tokens"]
        assert row["ratio_least"] <= exact["mean_ratio"] <= row["ratio_most"]


def test_command_takes_equal_budgets_and_the_optimum_itself(trace, tmp_path, capsys):
    path = str(trace.save(tmp_path / "small.trace"))
    arguments = ["optimum", path, "--budget", "6,50%", "--policy", "h2o,optimum", "--json"]
    assert main(arguments) == 0
    tables = json.loads(capsys.readouterr().out)
    assert {row["budget"] for row in tables["heads"]} == {"6", "50%"}
    assert {row["policy"] for row in tables["policies"]} == {"h2o"}
    assert main([*arguments, "--interval"]) == 2
    assert "optimum" in capsys.readouterr().err
    assert main(["optimum", path, "--budget", "pyramid:50%"]) == 2
    assert capsys.readouterr().err.startswith("h2o-theory: BadBudget")
