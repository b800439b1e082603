"""The experiments on tiny random models: what each arm hides, and results that come back whole."""

import json
import sys

import numpy as np
import pandas as pd
import pytest
import reference
import torch
from own_questions import ASKED, own_questions
from recorder_models import tokens

from h2o_theory.cli import main
from h2o_theory.errors import BadArgument, BadBudget, MissingDependency
from h2o_theory.experiments import EXPERIMENTS, Study, find_experiment, load_result, save_result
from h2o_theory.experiments import choice as choice_module
from h2o_theory.experiments import questions as questions_module
from h2o_theory.experiments.budgets import budget_ladder
from h2o_theory.experiments.choice import multiple_choice
from h2o_theory.experiments.fidelity import METRICS, fidelity, overlap
from h2o_theory.experiments.global_statistics import local_against_global, recorded, schedules_of
from h2o_theory.experiments.harness import questions_from_harness
from h2o_theory.experiments.quantised import quantised_cache
from h2o_theory.experiments.questions import Question
from h2o_theory.experiments.removal import mask_heavy_hitters
from h2o_theory.experiments.sparse import sparse_masks
from h2o_theory.experiments.streaming import long_text
from h2o_theory.figures.fidelity import fidelity_figure
from h2o_theory.figures.running import running_figure
from h2o_theory.live import evaluate
from h2o_theory.live.chooser import ScheduleChooser
from h2o_theory.live.evaluate import evaluate_following
from h2o_theory.live.quantise import Quantiser, fake_quantise
from h2o_theory.policies import make_policy
from h2o_theory.recorder.models import LoadedModel
from h2o_theory.recorder.tiny import tiny_model
from h2o_theory.statistics import share_interval


@pytest.fixture
def study(tmp_path):
    model = LoadedModel(tiny_model("llama"), None, "tiny", "llama", "", "test")
    return Study(model, tokens(160), tmp_path, tokens=80, windows=2, text="noise")


def test_the_ladder_pairs_every_policy_with_the_full_cache(study):
    result = budget_ladder(study, policies=("h2o", "recent", "sink"), budgets=("20%", "100%"))
    table = result.table.set_index("arm")
    assert table.loc["full cache", "loss_increase"] == 0 and (table["n"] == 158).all()
    assert abs(table.loc["h2o at 100%", "loss_increase"]) < 1e-6
    loss = np.mean([evaluate(study.model, ids, "recent", "20%").loss for ids in study.windows])
    assert table.loc["recent at 20%", "perplexity"] == pytest.approx(np.exp(loss))
    over = result.findings["h2o over sink at 20%"]
    difference = table.loc["h2o at 20%", "loss_increase"] - table.loc["sink at 20%"].loss_increase
    assert over["value"] == pytest.approx(difference)
    assert over["low"] <= over["value"] <= over["high"] and over["n"] == 158
    assert "match the full cache" in result.answer or "matches the full cache" in result.answer


def test_results_come_back_from_disk(study, tmp_path):
    result = long_text(study, budget="10")
    path = save_result(result, tmp_path / "results")
    again = load_result(path)
    assert again.findings.keys() == result.findings.keys() and again.setting["windows"] == 2
    pd.testing.assert_frame_equal(again.table, result.table, check_exact=False, rtol=1e-5)
    assert [file.name for file in path.parent.iterdir()] == ["streaming.json"]
    path.write_text("{}")
    with pytest.raises(BadArgument, match="not an experiment"):
        load_result(path)


def test_running_perplexity_is_that_of_its_stretch(study):
    result = long_text(study, budget="12.5%", positions="slot")
    assert "policy holds 10 entries" in running_figure(result)._supxlabel.get_text()
    running = result.extra["running"].set_index(["arm", "first"])
    assert result.table["arm"].tolist()[0] == "full cache" == result.setting["base"]
    first, last = 40, int(running.loc[("h2o", 40), "last"])
    losses = [
        evaluate(study.model, ids, "h2o", 10, positions="slot").losses[first:last]
        for ids in study.windows
    ]
    assert running.loc[("h2o", 40), "perplexity"] == pytest.approx(np.exp(np.mean(losses)))
    assert {axes.get_xlabel() for axes in running_figure(result).axes} == {
        "position in the text  (tokens)"
    }
    ends = result.extra["running"].groupby("arm")
    assert (ends["last"].max() == 80).all() and (ends["first"].min() == 0).all()


def test_a_text_beyond_the_context_is_measured_against_sinks(tmp_path):
    model = LoadedModel(
        tiny_model("llama", max_position_embeddings=60), None, "tiny", "llama", "", "test"
    )
    study = Study(model, tokens(80), tmp_path, tokens=80, windows=1, text="noise")
    with pytest.raises(BadArgument, match="within the model's context"):
        long_text(study, budget="10")
    result = long_text(study, budget="10", positions="slot")
    assert result.table["arm"].tolist() == ["sinks + recent", "h2o", "recent"]
    assert set(result.findings) == {"h2o over sinks + recent", "recent over sinks + recent"}
    other = long_text(study, policies=("h2o:decay=0.9",), budget="10", positions="slot")
    assert other.table["arm"].tolist() == ["sinks + recent", "h2o:decay=0.9"]
    running_figure(other)
    assert result.table["agreement"].isna().all() and (result.table["n"] == 79).all()
    h2o, sink = (
        evaluate(study.model, study.windows[0], name, 10, positions="slot").loss
        for name in ("h2o", "sink")
    )
    assert result.findings["h2o over sinks + recent"]["value"] == pytest.approx(h2o - sink)


def test_hidden_keys_are_the_heaviest(study):
    result = mask_heavy_hitters(study, shares=(0.05,))
    assert {"4 heavy hitters", "4 random", "4 random neighbours", "4 most recent"} <= set(
        result.table["arm"]
    )
    received = study.kept(None, kind="received", ids=study.windows[0])[1]["received"]
    assert received.shape == (3, 2, 80)
    assert np.allclose(received.sum(axis=-1), 80)  # every row gives away 1
    top = np.argsort(-received, axis=-1, kind="stable")[..., :4]

    def choosers(layer, kv_heads):
        made = []
        for head in range(kv_heads):
            schedule = np.full(80, 80)
            schedule[top[layer, head]] = top[layer, head]
            made.append(((head,), ScheduleChooser(schedule)))
        return made

    losses = [evaluate_following(study.model, study.windows[0], choosers).losses[1:]]
    first = study.store.load  # the cell of the first window holds the same losses
    cells = [first(path.stem) for path in (study.store.folder / "cells").rglob("*.safetensors")]
    kept = [arrays["losses"][1:] for _, arrays in cells if "losses" in arrays]
    assert any(np.allclose(losses[0], found, atol=1e-5) for found in kept)


def test_recent_keys_hidden_means_no_neighbour_is_seen(study):
    from h2o_theory.experiments.removal import _NoRecent

    seen = _NoRecent(20, 3).visible(np.arange(20), 10, 12)
    assert np.flatnonzero(seen[0]).tolist() == [0, 1, 2, 3, 4, 5, 6, 10]
    assert np.flatnonzero(seen[1]).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 11]


def test_schedules_from_a_trace_are_those_of_the_replay(study, tmp_path):
    trace = recorded(study, 0, tmp_path / "traces")
    assert trace.tokens == 80 and trace.layers == (0, 1, 2)
    for name in ("h2o", "tova", "optimum", "oracle_static"):
        schedules = schedules_of(trace, make_policy(name), 16)
        assert schedules.shape == (3, 2, 80)
        assert max(map(len, reference.visible_sets(schedules[1, 0]))) == 16
    closed = evaluate(study.model, study.windows[0], "h2o", 16).evicted_at
    opened = schedules_of(trace, make_policy("h2o"), 16)
    # Nothing was evicted below layer 0, so replay and model choose alike there.
    assert overlap(opened[0, 0], closed[0, 0], 16) == 1.0
    result = local_against_global(study, budget="20%")
    assert "global" in result.findings and "optimum's schedule" in result.findings


def test_overlap_by_hand():
    assert overlap(np.full(5, 5), np.full(5, 5), 5) == 1.0
    ours, theirs = np.array([2, 5, 5, 5]), np.array([5, 2, 5, 5])
    # Full from step 2 on: {0,1,2} both; then {1,2,3} against {0,2,3}.
    assert overlap(ours, theirs, 2) == pytest.approx((1.0 + 0.5) / 2)


def test_rounding_and_its_interaction(study):
    values = torch.linspace(-1, 1, 64).reshape(1, 1, 64)
    rounded = fake_quantise(values, 4, 64)
    assert len(rounded.unique()) == 16 and (rounded - values).abs().max() <= 1 / 15 + 1e-6
    assert (fake_quantise(values, 8, 8) - values).abs().max() < 1e-3
    assert torch.equal(fake_quantise(torch.ones(1, 2, 5), 4, 64), torch.ones(1, 2, 5))
    assert Quantiser(4, 64).entry_bytes(64, 64) == 64 + 8
    for wrong in ({"bits": 0}, {"bits": 9}, {"group": 0}):
        with pytest.raises(BadArgument):
            Quantiser(**wrong)
    result = quantised_cache(study, budget="20%")
    found = result.findings
    extra = found["h2o and 4 bits"]["value"] - found["h2o"]["value"] - found["4 bits"]["value"]
    assert found["interaction"]["value"] == pytest.approx(extra, abs=1e-9)
    fine = quantised_cache(study, budget="20%", bits=8, group=8)
    assert abs(fine.findings["8 bits"]["value"]) < 0.02


def test_masks_show_what_they_name(study):
    result = sparse_masks(study, budget="100%")
    increase = result.table.set_index("arm")["loss_increase"]
    assert abs(increase["topk"]) < 1e-5  # with room for every key nothing is left out
    result = sparse_masks(study, budget="20%")
    assert len(result.table) == 8
    result = sparse_masks(study, masks="quest:page=4,h2o_hf,topk:heavy=0.25,h2o_hf")
    pairs = ["quest:page=4", "quest:page=4 with heavy hitters"]
    arms = ["full cache", "h2o (a cache)", *pairs, "h2o_hf", "topk:heavy=0.25"]
    assert list(result.table["arm"]) == arms and result.answer.count(";") == 2
    assert "quest:page=4: heavy hitters over none" in result.findings
    assert "h2o_hf: heavy hitters over none" not in result.findings


def test_the_fidelity_study_has_its_three_parts(study, tmp_path):
    result = fidelity(
        study,
        policies=("h2o", "recent", "sink", "random", "lru"),
        budgets=("10%", "50%"),
        layer_policies=("h2o", "recent", "sink", "random", "lru", "tova", "heavy"),
        layers=(0, 1, 2),
        followed=("h2o", "tova"),
    )
    parts = result.table.groupby("part").size()
    assert parts["all layers"] == 5 * 2 * 2 and parts["one layer"] == 7 * 3
    assert result.table[list(METRICS)].notna().all().all()
    one = evaluate(study.model, study.windows[0], "recent", {0: 80, 1: 8, 2: 80}).loss - np.nanmean(
        study.full(0).losses
    )
    point = result.table.query("part == 'one layer' and policy == 'recent' and layer == 1")
    assert point["loss_increase"].item() == pytest.approx(one, abs=1e-6)
    overlaps = result.extra["overlap"]
    assert len(overlaps) == 2 * 3 and overlaps["jaccard"].between(0, 1).all()
    assert (overlaps[overlaps["layer"] == 0]["jaccard"] == 1).all()
    for part in ("all layers", "one layer"):
        shares = [result.findings[f"{part}: {name} is the best"]["value"] for name in METRICS]
        assert sum(shares) == pytest.approx(1)
    fidelity_figure(result).savefig(tmp_path / "fidelity.png")
    assert (tmp_path / "fidelity.png").stat().st_size > 10_000


def test_the_command_runs_an_experiment_and_resumes(folder, tmp_path, capsys, monkeypatch):  # noqa: F811
    command = ["experiment", "quantised", "--model", str(folder), "--out", str(tmp_path / "out")]
    command += ["--text", str(folder / "text.txt"), "--tokens", "70", "--windows", "1"]
    assert main([*command, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["setting"]["text"] == "text.txt" and result["setting"]["command"]
    masks = ["experiment", "masks", *command[2:], "--mask", "quest:page=4,heavy=0.5,h2o_hf"]
    assert main([*masks, "--json"]) == 0
    arms = [line["arm"] for line in json.loads(capsys.readouterr().out)["table"]]
    assert arms[2:] == ["quest:heavy=0.5,page=4", "h2o_hf"]
    assert main([*masks[:-1], "quests"]) == 2
    assert "Did you mean quest?" in capsys.readouterr().err
    is_no_option(capsys, [*command, "--mask", "topk"], "--mask")
    monkeypatch.setattr("h2o_theory.experiments.quantised.evaluate", None)  # nothing runs again
    assert main(command) == 0
    assert "beyond the sum" in capsys.readouterr().out
    is_no_option(capsys, [*command, "--policy", "h2o"], "--policy")
    assert main([*command, "--budget", "10%,20%"]) == 2
    assert "cannot be read" in capsys.readouterr().err
    is_no_option(capsys, ["experiment", "nothing", "--out", str(tmp_path / "x")], "nothing")
    assert find_experiment("ladder") is EXPERIMENTS["ladder"]
    for name, option, value, words in (
        ("quantised", "--tokens", "0", "tokens must be at least 1"),
        ("quantised", "--windows", "0", "windows must be at least 1"),
        ("quantised", "--budget", "", "cannot be read"),
        ("ladder", "--budget", "", "no budget was given"),
        ("ladder", "--policy", "", "no policy was given"),
        ("masks", "--mask", "", "no mask was given"),
        ("choice", "--shots", "", "cannot be read"),
    ):
        task = ["--task", "piqa"] if name == "choice" else []
        assert main(["experiment", name, *command[2:], *task, option, value]) == 2
        assert words in capsys.readouterr().err


def is_no_option(capsys, command, word):
    """The parser of the experiment refuses the command and names the option."""
    with pytest.raises(SystemExit) as stopped:
        main(command)
    assert stopped.value.code == 2 and word in capsys.readouterr().err


class Words:
    """A token for each new word, so that neighbours never share one."""

    known = {}

    def __call__(self, text, **_):
        words = [self.known.setdefault(word, len(self.known)) for word in text.split()]
        return {"input_ids": [3 + number % 90 for number in words]}


@pytest.fixture
def asking(tmp_path):
    """A study whose model has a tokenizer."""
    model = LoadedModel(tiny_model("llama"), Words(), "tiny", "llama", "", "test")
    return Study(model, tokens(64), tmp_path, tokens=64)


def test_questions_are_asked_and_answered(asking):
    questions = own_questions((0, 2))
    result = multiple_choice(asking, questions=questions, policies=("h2o",))
    assert result.table["arm"].tolist() == ["full", "h2o"] * 2
    assert (result.table["n"] == ASKED).all()
    full = result.table[result.table["arm"] == "full"]
    assert (full["same_as_full"] == 1).all()
    assert (result.table["low"] <= result.table["accuracy"]).all()
    hits = []
    for question in questions[2]:  # answers of one word each: the first token is all
        ids = torch.tensor([Words()(question.pairs[0][0])["input_ids"]])
        with torch.no_grad():
            logits = asking.model.model(ids).logits[0, -1]
        firsts = [Words()(answer)["input_ids"][0] for _, answer in question.pairs]
        hits.append(int(logits[firsts].argmax()) == question.right)
    assert full["accuracy"].iloc[1] == np.mean(hits)
    low, high = share_interval(8, 16)[1:]
    assert (low, high) == (pytest.approx(0.280, abs=1e-3), pytest.approx(0.720, abs=1e-3))
    for nothing in ({}, {0: []}):
        with pytest.raises(BadArgument, match="at least one question"):
            multiple_choice(asking, questions=nothing)


def test_an_answer_counts_as_a_whole_and_by_its_length(asking, monkeypatch):
    monkeypatch.setattr(choice_module, "TOGETHER", 2)
    before, answers = "some words to read before A:", (" same b", " same b c d", " same")
    question = Question(tuple((before, answer) for answer in answers), (6, 10, 4), 0)
    read = len(before.split())
    for policy, budget in (("full", "100%"), ("h2o", 4), ("recent", 3), ("spatten", 3)):
        result = multiple_choice(
            asking, questions={0: [question] * 3}, policies=(policy,), budget=str(budget)
        )
        sums = []
        for answer in answers:
            ids = Words()(before + answer)["input_ids"]
            sums.append(-evaluate(asking.model, ids, policy, budget).losses[read:].sum())
        row = result.table.iloc[-1]
        assert row["n"] == 3 and row["accuracy"] == (np.argmax(sums) == 0)
        assert row["accuracy_norm"] == (np.argmax(np.divide(sums, question.lengths)) == 0)
        cells = [
            asking.store.load(path.stem)
            for path in (asking.store.folder / "cells").rglob("*.safetensors")
        ]
        assert any(np.allclose(arrays["sums"], sums, atol=1e-4) for _, arrays in cells)
    roomy = multiple_choice(asking, questions={0: [question]}, policies=("recent",), budget="99")
    assert (roomy.table["same_as_full"] == 1).all()
    kept = len(list((asking.store.folder / "cells").rglob("*.safetensors")))
    empty = Question((("", " a"), ("", " b")), (1, 1), 0)
    with pytest.raises(BadArgument, match="no token"):
        multiple_choice(asking, questions={0: [question, empty]})
    short = Question((("one", " same"), ("one", " b")), (1, 1), 0)
    with pytest.raises(BadBudget, match="protected"):
        multiple_choice(asking, questions={0: [question, short]}, policies=("sink:n_sink=2",))
    assert len(list((asking.store.folder / "cells").rglob("*.safetensors"))) == kept


def test_questions_of_one_token_are_read_once_for_all_answers(asking, monkeypatch):
    reads, original = [], questions_module._predictions

    def counted(*arguments):
        reads.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(questions_module, "_predictions", counted)
    multiple_choice(asking, questions=own_questions((1,)), policies=())
    assert len(reads) == ASKED
    multiple_choice(asking, questions=own_questions((1,)), policies=())
    assert len(reads) == ASKED  # the second run found its cells


def test_the_package_of_the_tasks_is_asked_for(folder, tmp_path, capsys, monkeypatch):  # noqa: F811
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.delitem(sys.modules, "lm_eval.tasks", raising=False)
    with pytest.raises(MissingDependency, match=r"h2o-theory\[harness\]"):
        questions_from_harness("piqa")
    command = ["experiment", "choice", "--model", str(folder), "--out", str(tmp_path / "out")]
    assert main([*command, "--task", "piqa"]) == 2
    assert "h2o-theory[harness]" in capsys.readouterr().err
    is_no_option(capsys, [*command, "--limit", "3"], "--task")
    assert main([*command, "--task", "piqa", "--shots", "-1"]) == 2
    assert "--shots" in capsys.readouterr().err
    command[1] = "ladder"
    is_no_option(capsys, [*command, "--task", "piqa"], "--task")
    assert not (tmp_path / "out").exists()
