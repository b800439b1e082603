"""Budgets by kv_head, replay without the optimum, schedules alone, and memory that does not grow
with the square of the length."""

import json
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import reference
from small_traces import small_trace

import h2o_theory as ht
from h2o_theory.budgets import AdaKV, BudgetMatrix, PyramidKV
from h2o_theory.cli import main
from h2o_theory.errors import BadArgument, BadBudget, OutOfRange
from h2o_theory.trace import Trace

EVERY = "full,recent,sink,random,h2o,h2o:rows=raw,tova,lru,greedy,belady,belady_mass,optimum"


def by_head(table):
    """The masses of a table, by kv_head, policy and budget in tokens."""
    keys = ["layer", "kv_head", "policy", "parameters", "budget_tokens"]
    return table.set_index(keys).retained_mass.to_dict()


@pytest.mark.parametrize("prefill", [0, 11])
def test_a_matrix_gives_each_head_what_it_gets_alone(prefill):
    trace = small_trace()
    array = np.array([[3, 9], [40, 6]])
    policies = "h2o,h2o:rows=raw,random,belady,optimum"
    table = ht.replay(trace, policies, array, prefill=prefill)
    assert set(table.budget) == {"matrix"}
    for layer in range(2):
        for head in range(2):
            alone = ht.replay(
                trace,
                policies,
                int(array[layer, head]),
                prefill=prefill,
                layers=[layer],
                kv_heads=[head],
            )
            own = table[(table.layer == layer) & (table.kv_head == head)]
            drop = ["budget", "seconds"]
            left, right = (part.drop(columns=drop).reset_index(drop=True) for part in (own, alone))
            assert left.equals(right)


@pytest.mark.parametrize("smaller_first", [False, True])
def test_a_set_shared_by_a_layer_has_the_budget_of_its_layer(smaller_first, tmp_path):
    trace, budgets = small_trace(), (4, 9) if smaller_first else (9, 4)
    matrix = dict(enumerate(budgets))
    table = ht.replay(trace, "tova,h2o", matrix)
    schedules = ht.schedules(trace, "tova", matrix)
    spec = {"traces": [trace], "policies": ["tova"], "budgets": [matrix]}
    swept = pd.read_parquet(ht.run_sweep(spec, tmp_path, workers=1).table)
    for layer, budget in matrix.items():
        alone = by_head(ht.replay(trace, "tova,h2o", budget, layers=[layer]))
        assert by_head(table[table.layer == layer]) == alone
        assert by_head(swept[swept.layer == layer]).items() <= alone.items()
        own = ht.schedules(trace, "tova", budget, layers=[layer])
        assert all((schedules[head] == own[head]).all() for head in own)


def test_all_forms_of_a_matrix_are_one():
    trace = small_trace()
    entries = {(0, 0): 4, (0, 1): "20%", (1, 0): 8, (1, 1): 8}
    array = np.array([[4, 8], [8, 8]])

    def rule(trace, prefill):
        return {head: entries[head] for layer in trace.layers for head in [(layer, 0), (layer, 1)]}

    forms = [
        entries,
        {(0, 0): 4, (0, 1): 8, 1: 8},
        array,
        ht.BudgetMatrix("mine", entries),
        ht.BudgetMatrix.from_array(array, "named"),
        rule,
    ]
    masses = [by_head(ht.replay(trace, "h2o", form)) for form in forms]
    assert all(found == masses[0] for found in masses)
    names = [ht.replay(trace, "h2o", form).budget.unique().tolist() for form in forms]
    assert names == [["matrix"], ["matrix"], ["matrix"], ["mine"], ["named"], ["rule"]]
    mixed = ht.replay(trace, "h2o", [5, "10%", forms[3], rule])
    assert list(mixed.budget.unique()) == ["5", "10%", "mine", "rule"]


def test_the_best_split_is_a_matrix():
    """split_budget's allocation, handed to a replay: the optimum retains what it promised."""
    trace = small_trace(layers=1)
    curves = [
        ht.optimum.optimum_curve(ht.optimum.to_fixed_point(trace.rows(0, head).mean(axis=0)), 20)
        for head in range(2)
    ]
    split = ht.optimum.split_budget(curves, 20)
    table = ht.replay(trace, "optimum", split.budgets[None])
    assert table.budget_tokens.sum() == 20
    assert np.allclose(table.retained_mass * table.n_rows, split.values * 2.0**-36)


def test_budget_rules_by_name():
    trace = small_trace(tokens=40)
    for name, rule in (("pyramid:20%", PyramidKV("20%")), ("ada:8", AdaKV("8"))):
        named = ht.replay(trace, "h2o", name, prefill=20)
        assert named.budget_tokens.sum() == 8 * 4 and named.budget.unique() == [rule.__name__]
        assert by_head(named) == by_head(ht.replay(trace, "h2o", rule, prefill=20))
    with pytest.raises(BadBudget, match="10%%"):
        ht.replay(trace, "h2o", "pyramid:10%%")


def test_matrix_files(tmp_path, capsys):
    trace = small_trace()
    rows, layers, csv = (tmp_path / name for name in ("rows.json", "layers.json", "heads.csv"))
    rows.write_text("[[4, 8], [6, 6]]")
    layers.write_text(json.dumps({"0": [4, "20%"], "1": 6}))
    csv.write_text("layer,kv_head,budget\n0,0,4\n0,1,8\n1,,6\n")
    found = [
        by_head(ht.replay(trace, "h2o", ht.read_budget_matrix(p))) for p in (rows, layers, csv)
    ]
    assert found[0] == found[1] == found[2]
    path = trace.save(tmp_path / "small.trace")
    line = ["replay", str(path), "--policy", "h2o", "--budget-matrix", str(rows), "--json"]
    assert main(line) == 0
    captured = capsys.readouterr()
    assert [row["budget_tokens"] for row in json.loads(captured.out)] == [4, 8, 6, 6]
    assert (
        "h2o at rows.json = 8 tokens (kv_heads: 1): n_sink=0 n_heavy=4 n_recent=4" in captured.err
    )
    assert "h2o at rows.json = 6 tokens (kv_heads: 2)" in captured.err


def test_bad_matrices_are_named(tmp_path):
    trace = small_trace()
    bad = tmp_path / "bad.json"
    for text in ("{", "[]", '{"a": 1}', "5"):
        bad.write_text(text)
        with pytest.raises(BadBudget, match="bad.json"):
            ht.read_budget_matrix(bad)
    for name in ("none.json", "m.txt"):
        with pytest.raises(BadBudget, match=name):
            ht.read_budget_matrix(tmp_path / name)
    for matrix, words in (
        ({(0, 0): 5}, "layer 0, kv_head 1"),
        ({0: 5, 1: 0}, "at least 1"),
        ({0: 5, 1: 41}, "1 to 40"),
        (np.array([[5, 5]]), "1 rows"),
        (lambda trace, prefill: 5, "no matrix"),
    ):
        with pytest.raises(BadBudget, match=words):
            ht.replay(trace, "h2o", matrix)
    with pytest.raises(BadBudget, match="same budget"):
        ht.replay(trace, "tova", np.array([[5, 6], [7, 7]]))
    assert len(ht.replay(trace, "tova", np.array([[5, 5], [7, 7]]))) == 4


def test_resolved_parts_are_those_of_the_results():
    trace = small_trace()
    parts = ht.resolved_parts(trace, "full,h2o,sink:n_sink=2", "10%,7")
    table = ht.replay(trace, "full,h2o,sink:n_sink=2", "10%,7")
    keys = ["policy", "budget", "budget_tokens", "parameters"]
    counts = table.groupby(keys, sort=False).size()
    assert [tuple(part[key] for key in keys) for part in parts] == list(counts.index)
    assert [part["heads"] for part in parts] == counts.tolist()


@pytest.mark.parametrize("prefill", [0, 9])
def test_without_the_optimum_all_other_columns_are_the_same(prefill):
    trace, policies = small_trace(), EVERY.removesuffix(",optimum")
    whole = ht.replay(trace, policies, "1,10%,40", prefill=prefill)
    bare = ht.replay(trace, policies, "1,10%,40", prefill=prefill, optimum=False)
    columns = ["optimum_mass", "approximation_ratio", "lost_mass_ratio"]
    assert bare[columns].isna().all(axis=None) and list(bare) == list(whole)
    drop = [*columns, "seconds"]
    assert bare.drop(columns=drop).equals(whole.drop(columns=drop))
    with pytest.raises(BadArgument, match="optimum"):
        ht.replay(trace, "optimum", 5, optimum=False)


class Synthetic:
    """A long trace whose rows are made on demand: nothing of size T^2 exists anywhere."""

    def __init__(self, tokens):
        self.tokens, self.name, self.trace_id, self.layers = tokens, "synthetic", "0" * 12, (0,)
        self.inner = Trace.from_attention(np.ones((1, 1, 1, 1)))
        self.spec = self.inner.spec

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def blocks(self, layer, kv_head, block_rows):
        for start in range(0, self.tokens, block_rows):
            t = np.arange(start, min(start + block_rows, self.tokens))
            rows = np.cos(np.arange(self.tokens) * (1 + t[:, None])) + 1.1
            rows *= np.arange(self.tokens) <= t[:, None]
            yield start, (rows / rows.sum(axis=1, keepdims=True))[None]


def test_an_online_replay_does_not_hold_the_square_of_the_rows():
    tokens = 4096
    policies = "recent,sink,h2o,h2o:rows=raw,lru,lfu,random,tova:shared=kv_head"
    ht.replay(Synthetic(64), policies, 9, optimum=False, workers=1)
    tracemalloc.start()
    table = ht.replay(Synthetic(tokens), policies, "41,5%", optimum=False, workers=1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(table) == 16 and (table.realised_budget_max == table.budget_tokens).all()
    assert peak < 8 * tokens**2 / 4, f"{peak / 2**20:.0f} MiB at the peak"


@pytest.mark.parametrize("policy", EVERY.split(","))
def test_schedules_are_those_that_replay_measures(policy):
    trace = small_trace()
    table = ht.replay(trace, policy, {0: 7, 1: 9}, prefill=5, seed=3)
    found = ht.schedules(trace, policy, {0: 7, 1: 9}, prefill=5, seed=3)
    assert list(found) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for row in table.itertuples():
        sets = reference.visible_sets(found[row.layer, row.kv_head])
        rows = trace.rows(row.layer, row.kv_head).mean(axis=0)
        mass = np.mean([rows[t, sets[t]].sum() for t in range(5, 40)])
        assert row.retained_mass == pytest.approx(mass, abs=1e-12)


def test_schedules_refuse_what_replay_refuses():
    trace = small_trace()
    chosen = ht.schedules(trace, "h2o", 5, layers=[1], kv_heads=[0])
    assert list(chosen) == [(1, 0)] and chosen[1, 0].dtype == np.int64
    with pytest.raises(BadArgument, match="one budget"):
        ht.schedules(trace, "h2o", "5,6")
    with pytest.raises(OutOfRange):
        ht.schedules(trace, "h2o", 5, layers=[9])


def test_a_matrix_is_one_line_of_the_summary_and_one_budget_of_the_report(tmp_path):
    table = ht.replay(small_trace(), "h2o,recent", [np.array([[3, 9], [4, 8]]), "30%"])
    summary = ht.summary_table(table)
    own = summary[summary.budget == "matrix"]
    assert sorted(own.policy) == ["h2o", "recent"] and (own.heads == 4).all()
    assert (own.budget_tokens == 6).all()
    h2o = table[(table.policy == "h2o") & (table.budget == "matrix")]
    assert own.set_index("policy").mean_ratio["h2o"] == h2o.approximation_ratio.mean()
    page = ht.write_report(table, tmp_path / "report")
    assert "k = 6 tokens" in page.read_text()
    assert len(ht.load_results(tmp_path / "report" / "results.parquet")) == len(table)


def test_different_budgets_of_one_name_are_refused():
    trace = small_trace()
    for pair in (
        [{0: 4, 1: 4}, {0: 6, 1: 4}],
        [BudgetMatrix("mine", {0: 4, 1: 4}), BudgetMatrix("mine", {0: 6, 1: 4})],
    ):
        with pytest.raises(BadBudget, match="two different budgets go by one name"):
            ht.replay(trace, "h2o", pair)
