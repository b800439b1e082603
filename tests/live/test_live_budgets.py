"""Budgets by kv_head in the running model: rules, matrices, and what they are equal to."""

import json

import numpy as np
import pytest
import reference
from live_referee import Referee, losses_token_by_token
from recorder_models import CACHE, tiny_model, tokens
from recorder_models import FAMILIES as SOME

import h2o_theory as ht
from h2o_theory.budgets import AdaKV, KvHeads, PyramidKV
from h2o_theory.cli import main
from h2o_theory.errors import BadArgument, BadBudget
from h2o_theory.families import FAMILIES
from h2o_theory.figures.live import label_live
from h2o_theory.live import closed_loop, evaluate
from h2o_theory.live.campaign import run_live, windows_of
from h2o_theory.live.evaluate import visible_sizes
from h2o_theory.live.heads import heads_of
from h2o_theory.live.refuse import resolve_budgets
from h2o_theory.live.samples import sample_table
from h2o_theory.live.summary import summarise
from h2o_theory.policies.base import without_parts
from h2o_theory.recorder.models import LoadedModel
from h2o_theory.report import load_results

TOKENS = 60


def recorded(model, tmp_path, count=TOKENS):
    """A trace of a tiny model."""
    with ht.record(model, tmp_path / "tiny.trace") as recording:
        model(tokens(count))
    assert recording is not None
    return ht.open_trace(tmp_path / "tiny.trace")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_configuration_tells_the_heads_that_the_loop_sees(family):
    model = tiny_model(family)
    heads = heads_of(model, 12)
    found = evaluate(model, tokens(12), "recent", 5).evicted_at
    assert found.shape == (len(heads.layers), heads.count, heads.tokens)


@pytest.mark.parametrize("average", ["5%", "20%", 9, 60])
def test_the_pyramid_of_a_model_is_that_of_its_trace(average, tmp_path):
    for family in SOME:
        model = tiny_model(family)
        heads = heads_of(model, TOKENS)
        ((text, found),) = resolve_budgets([f"pyramid:{average}"], heads, 0)
        trace = recorded(model, tmp_path / family)
        assert found == PyramidKV(average)(trace) == PyramidKV(average)(heads)
        table = ht.replay(trace, "h2o", f"pyramid:{average}")
        assert table.set_index(["layer", "kv_head"]).budget_tokens.to_dict() == found
        k = {"5%": 3, "20%": 12}.get(average, average)
        assert sum(found.values()) == k * len(found) and set(table.budget) == {text}


@pytest.mark.parametrize("policy", ["h2o", "recent"])
def test_every_head_has_its_own_budget_as_in_a_plain_run(policy):
    model, ids = tiny_model("llama"), tokens(40)
    rule = {"h2o": reference.H2O, "recent": reference.Recent}[policy]
    for budget in ("pyramid:20%", {0: 9, (1, 0): 3, (1, 1): 14, 2: "10%"}):
        ((_, budgets),) = resolve_budgets([budget], heads_of(model, 40), 0)
        result = evaluate(model, ids, policy, budget)
        for (layer, head), k in budgets.items():
            sizes = visible_sizes(result.evicted_at[layer, head])
            assert sizes.tolist() == [min(t + 1, k) for t in range(40)]
        referee = Referee(lambda *name, own=budgets: rule(own[name], None), budgets)
        expected = losses_token_by_token(model, ids, referee)
        assert np.abs(result.losses[1:] - expected).max() < 5e-5
        assert result.sizes.max() == sum(budgets.values())


def test_equal_budgets_are_the_plain_budget(tmp_path):
    model, windows = tiny_model("llama"), windows_of(tokens(80), 80, 1)
    plain = evaluate(model, windows[0], "h2o", "20%")
    for same in (np.full((3, 2), 16), dict.fromkeys(range(3), "20%"), PyramidKV(80)):
        found = evaluate(model, windows[0], "h2o", same)
        if isinstance(same, PyramidKV):
            assert (found.evicted_at == 80).all()
        else:
            assert (found.losses[1:] == plain.losses[1:]).all()
    first = run_live(model, windows, "h2o", "20%", out=tmp_path).table.iloc[1]
    again = run_live(model, windows, "h2o", np.full((3, 2), 16), out=tmp_path)
    assert again.skipped == 2  # the same cell under another name
    second = again.table.iloc[1]
    assert (second.loss, second.parameters) == (first.loss, first.parameters)
    assert (first.budget, second.budget) == ("20%", "matrix")


def test_what_ada_gives_on_a_trace_runs_in_the_model(tmp_path):
    model, ids = tiny_model("llama"), tokens(TOKENS)
    budgets = AdaKV(12)(recorded(model, tmp_path), 30)
    assert len(set(budgets.values())) > 1 and sum(budgets.values()) == 12 * 6
    result = evaluate(model, ids, "snapkv", budgets, prefill=30)
    last = (result.evicted_at >= TOKENS - 1).sum(axis=-1)
    assert {(i, j): k for (i, j), k in np.ndenumerate(last)} == budgets
    for rule in ("ada:20%", AdaKV("20%"), lambda trace, prefill: {0: 5, 1: 5, 2: 5}):
        with pytest.raises(BadBudget, match="reads recorded rows.*Call it on a trace"):
            evaluate(model, ids, "snapkv", rule, prefill=30)

    def halves(heads, prefill):
        return {layer: heads.tokens // (layer + 2) for layer in heads.layers}

    halves.needs = "kv_heads"
    own = evaluate(model, ids, "recent", halves)
    assert own.sizes.max() == 2 * (30 + 20 + 15)
    assert halves(KvHeads(TOKENS, (0, 1, 2), 2), 0) == {0: 30, 1: 20, 2: 15}


def test_a_campaign_names_the_rule_and_tells_matrices_apart(tmp_path):
    model, windows = tiny_model("llama"), windows_of(tokens(80), 80, 1)
    one, other = np.array([[8, 24], [16, 16], [4, 28]]), np.array([[24, 8], [16, 16], [4, 28]])
    options = {"out": tmp_path / "c"}
    campaign = run_live(model, windows, "h2o,sink", ["20%", "pyramid:20%", one], **options)
    table = campaign.table
    assert table["budget"].tolist() == ["100%", *["20%", "pyramid(20%)", "matrix"] * 2]
    assert table["budget_tokens"].tolist() == [80] + [16] * 6 and table["cell"].is_unique
    row = table.iloc[2]
    assert row.parameters == without_parts(table.iloc[1].parameters) != table.iloc[1].parameters
    assert row.loss == evaluate(model, windows[0], "h2o", "pyramid:20%").loss
    ((_, budgets),) = resolve_budgets(["pyramid:20%"], heads_of(model, 80), 0)
    assert row.kv_bytes == sum(budgets.values()) * 128
    again = run_live(model, windows, "h2o,sink", ["pyramid:20%", other], **options)
    assert again.skipped == 3 and again.failed == 0
    assert not set(again.table["cell"][[2, 4]]) & set(table["cell"])
    summary = summarise(campaign)
    assert len(summary) == 7
    labels = label_live(summary)
    assert (labels[summary.columns] == summary).all(axis=None)  # in the order it had
    series = set(zip(labels["series"], labels["variant"], strict=True))
    assert series >= {("h2o", 0), ("h2o, matrix", 1), ("h2o, pyramid", 2), ("sink, pyramid", 2)}
    with pytest.raises(BadArgument, match="given twice"):
        run_live(model, windows, "h2o", [one, one], **options)
    for namesake in (other, one + [[0, 0], [1, -1], [0, 0]]):  # of one mean
        with pytest.raises(BadBudget, match="go by one name.*its own"):
            run_live(model, windows, "h2o", [one, namesake], **options)


def test_matrices_that_do_not_fit_are_refused():
    model, ids = tiny_model("llama"), tokens(30)
    for budget, words in (
        (np.full((2, 2), 5), "2 rows.*expected 3"),
        (np.full((3, 1), 5), "no entry"),
        (np.full((3, 2), 0), "at least 1"),
        (np.full((3, 2), 31), "1 to 30"),
        ({0: 5, 1: 5}, "layer 2"),
        ("pyramid:200%", "out of range"),
    ):
        with pytest.raises(BadBudget, match=words):
            evaluate(model, ids, "h2o", budget)
    with pytest.raises(BadBudget, match="same budget"):
        evaluate(model, ids, "tova", np.array([[5, 6], [7, 7], [8, 8]]))
    assert evaluate(model, ids, "tova", np.array([[5, 5], [7, 7], [8, 8]])).sizes.max() == 40
    with pytest.raises(BadBudget, match="protected"):
        evaluate(model, ids, "sink:n_sink=5", np.array([[9, 9], [5, 9], [9, 9]]))
    with closed_loop(model, "full", "pyramid:10%", tokens=30) as loop:
        model(ids, **{CACHE: loop.cache})
        assert (loop.evicted_at == 30).all()


def test_samples_are_drawn_at_a_rule(tmp_path):
    class Tokenizer:
        def decode(self, ids):
            return " ".join(map(str, ids))

    model = LoadedModel(tiny_model("llama"), Tokenizer(), "tiny", "llama", "", "test")
    table = sample_table(
        model,
        tokens(9)[0].tolist(),
        "h2o",
        "pyramid:20%",
        samples=2,
        new_tokens=31,
        temperature=0.8,
        out=tmp_path,
    )
    assert table["budget"].tolist() == ["100%", "pyramid(20%)"] and set(table["status"]) == {"done"}


def test_the_command_takes_rules_and_matrices(folder, tmp_path, capsys):  # noqa: F811
    command = ["live", str(folder), "--text", str(folder / "text.txt"), "--tokens", "70"]
    command += ["--policy", "h2o,recent", "--out", str(tmp_path / "out")]
    assert main([*command, "--budget", "20%,pyramid:20%"]) == 0
    shown = capsys.readouterr().out
    assert "pyramid(20%)" in shown and "h2o, pyramid" in shown and "n_heavy" not in shown
    cells = load_results(tmp_path / "out" / "cells.parquet")
    assert cells["budget"].tolist() == ["100%", *["20%", "pyramid(20%)"] * 2]
    assert (tmp_path / "out" / "loss.png").stat().st_size > 10_000
    matrix = tmp_path / "heads.json"
    matrix.write_text("[[10, 20], [5, 5], [2, 42]]")
    assert main([*command, "--budget-matrix", str(matrix), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["budget"] for row in rows] == ["100%", "heads.json", "heads.json"]
    assert rows[1]["budget_tokens"] == 14 and rows[1]["cell"] not in set(cells["cell"])
    assert main([*command, "--budget", "ada:20%", "--prefill", "40"]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("h2o-theory: BadBudget: ada(20%): the budget rule reads recorded rows")
    assert "ada(20%)" in error and "Call it on a trace" in error
