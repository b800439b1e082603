"""Campaigns of the closed loop: resumed, failing in single cells, and from the command line."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from recorder_models import tokens

from h2o_theory.cli import main
from h2o_theory.errors import BadArgument, BadBudget, OutputExists, TextError
from h2o_theory.live import campaign as campaign_module
from h2o_theory.live import evaluate, full_run
from h2o_theory.live.campaign import LIVE_COLUMNS, run_live, windows_of
from h2o_theory.live.summary import summarise
from h2o_theory.recorder.tiny import tiny_model
from h2o_theory.report import load_results


@pytest.fixture
def windows():
    return windows_of(tokens(160), 80, 2)


def test_every_cell_is_what_evaluate_says(tmp_path, windows):
    model = tiny_model("llama")
    campaign = run_live(model, windows, "h2o,sink", "10%,20", out=tmp_path / "c", text="noise")
    table = campaign.table
    assert tuple(table.columns) == LIVE_COLUMNS and len(table) == 2 * (1 + 2 * 2)
    assert set(table["level"]) == {"closed"} and set(table["status"]) == {"done"}
    reference = full_run(model, windows[1])
    ours = (table["window"] == 1) & (table["policy"] != "full")
    for row in table[ours].itertuples():
        result = evaluate(model, windows[1], row.policy, row.budget_tokens, reference=reference)
        assert row.loss == result.loss and row.n == 79
        assert row.kl == pytest.approx(result.kl[:-1].mean())
        assert row.agreement == pytest.approx(result.agreement[:-1].mean())
        assert row.loss_increase == pytest.approx(result.loss - np.nanmean(reference.losses))
        assert row.kv_bytes == result.peak_kv_bytes
        assert (campaign.losses[row.cell][1:] == result.losses[1:]).all()
    full = table[(table["window"] == 1) & (table["policy"] == "full")].iloc[0]
    result = evaluate(model, windows[1], "full", 80)
    assert full.loss == pytest.approx(result.loss, abs=1e-6) and full.kl == 0
    assert full.kv_bytes == result.peak_kv_bytes and full.full_kv_bytes == full.kv_bytes


def test_a_second_run_computes_only_what_is_missing(tmp_path, windows, monkeypatch):
    model, calls = tiny_model("llama"), []
    first = run_live(model, windows, "h2o", 8, out=tmp_path)
    original = campaign_module.evaluate

    def counted(*args, **options):
        calls.append(args[2].name)
        return original(*args, **options)

    monkeypatch.setattr(campaign_module, "evaluate", counted)
    second = run_live(model, windows, "h2o,recent", 8, out=tmp_path)
    assert calls == ["recent", "recent"] and second.skipped == 4
    pd.testing.assert_frame_equal(
        first.table, second.table[second.table["policy"] != "recent"].reset_index(drop=True)
    )
    cells = sorted((tmp_path / "cells").rglob("*.safetensors"))
    cells[0].write_bytes(cells[0].read_bytes()[:100])  # damaged, so computed again
    third = run_live(model, windows, "h2o,recent", 8, out=tmp_path)
    assert third.skipped == 5 and third.failed == 0
    for other in ({"seed": 1}, {"prefill": 4}):
        assert run_live(model, windows, "h2o", 8, out=tmp_path, **other).skipped == 0
    with torch.no_grad():
        model.lm_head.weight[3] *= 1.001
    assert run_live(model, windows, "h2o", 8, out=tmp_path).skipped == 0


def test_a_cell_without_memory_is_marked_and_the_others_go_on(tmp_path, windows, monkeypatch):
    model, original = tiny_model("llama"), campaign_module.evaluate

    def short_of_memory(model, ids, policy, *args, **options):
        if policy.name == "h2o":
            raise torch.OutOfMemoryError("tried to allocate 9 TiB")
        return original(model, ids, policy, *args, **options)

    monkeypatch.setattr(campaign_module, "evaluate", short_of_memory)
    campaign = run_live(model, windows, "h2o,recent", 8, out=tmp_path)
    failed = campaign.table[campaign.table["status"] == "failed"]
    assert campaign.failed == 2 and set(failed["policy"]) == {"h2o"}
    assert set(failed["reason"]) == {"tried to allocate 9 TiB"} and failed["loss"].isna().all()
    assert set(summarise(campaign)["policy"]) == {"full", "recent"}
    monkeypatch.undo()
    again = run_live(model, windows, "h2o,recent", 8, out=tmp_path)
    assert again.failed == 0 and again.skipped == 4
    monkeypatch.setattr(campaign_module, "evaluate", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # only memory is forgiven
        run_live(model, windows, "lru", 8, out=tmp_path)


def test_the_summary_pairs_tokens_and_gives_intervals(tmp_path, windows):
    campaign = run_live(tiny_model("llama"), windows, "h2o,recent", "5%,50%", out=tmp_path)
    summary = summarise(campaign)
    assert (summary["n"] == 158).all() and (summary["windows"] == 2).all()
    assert (
        (summary["low"] <= summary["loss_increase"]) & (summary["high"] >= summary["low"])
    ).all()
    full = summary[summary["policy"] == "full"].iloc[0]
    assert full.loss_increase == 0 and full.low == 0 and full.high == 0 and full.kv_share == 1
    h2o = campaign.table[(campaign.table["policy"] == "h2o") & (campaign.table["budget"] == "5%")]
    line = summary[(summary["policy"] == "h2o") & (summary["budget"] == "5%")].iloc[0]
    assert line.perplexity == pytest.approx(np.exp(h2o["loss"].mean()))
    assert line.kv_share == pytest.approx(4 / 80)


def test_what_cannot_run_is_refused_before_any_work(tmp_path, windows):
    model = tiny_model("llama")
    for error, options in (
        (BadArgument, {"policies": "belady"}),
        (BadArgument, {"policies": "h2o,h2o"}),
        (BadBudget, {"policies": "sink:n_sink=9", "budgets": 4}),
        (BadArgument, {"positions": "both"}),
        (BadArgument, {"prefill": 79}),
    ):
        with pytest.raises(error):
            run_live(
                model, windows, **{"policies": "h2o", "budgets": 8, "out": tmp_path, **options}
            )
    assert not list(tmp_path.iterdir())
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(OutputExists):
        run_live(model, windows, "h2o", 8, out=tmp_path)
    with pytest.raises(TextError, match="shorter"):
        windows_of(tokens(10), 6, 2)
    with pytest.raises(BadArgument, match="at least two"):
        windows_of(tokens(10), 1, 2)


def test_the_command_writes_table_figure_and_samples(folder, tmp_path, capsys):
    command = ["live", str(folder), "--text", str(folder / "text.txt"), "--tokens", "70"]
    command += ["--windows", "2", "--policy", "h2o,recent", "--budget", "10%,20"]
    command += ["--out", str(tmp_path / "out"), "--samples", "2", "--prompt", "9"]
    command += ["--new-tokens", "30"]
    assert main(command) == 0
    shown = capsys.readouterr()
    assert "recent" in shown.out and "0 of 10 cells were finished before" in shown.err
    cells = load_results(tmp_path / "out" / "cells.parquet")
    assert len(cells) == 10 and cells.attrs["provenance"]["source"] == "folder"
    assert (tmp_path / "out" / "loss.png").stat().st_size > 10_000
    samples = load_results(tmp_path / "out" / "samples.csv")
    assert len(samples) == 5 and samples["self_bleu"].between(0, 1).all()
    h2o = samples[(samples["policy"] == "h2o") & (samples["budget"] == "20")].iloc[0]
    full = samples[samples["policy"] == "full"].iloc[0]
    assert h2o["kv_bytes"] < full["kv_bytes"] and h2o["held_bytes"] == 3 * 2 * 19 * 128
    assert main([*command, "--json"]) == 0
    shown = capsys.readouterr()
    assert "10 of 10 cells were finished before" in shown.err
    assert len(json.loads(shown.out)) == 10


@pytest.mark.parametrize(
    "extra, words",
    [
        (["--policy", "optimum"], "yet to be computed"),
        (["--policy", "sink:n_sink=9", "--budget", "4"], "protected parts"),
        (["--tokens", "500"], "shorter"),
        (["--samples", "1"], "Self-BLEU"),
        (["--samples", "-1"], "Self-BLEU"),
        (["--samples", "2", "--prompt", "0"], "--prompt: "),
        (["--samples", "2", "--prompt", "-3"], "--prompt: "),
        (["--samples", "2", "--new-tokens", "0"], "new_tokens: "),
        (["--samples", "2", "--temperature", "-1"], "temperature: "),
        (["--samples", "2", "--prompt", "100"], "at most 128"),
        (["--samples", "2", "--prompt", "5", "--new-tokens", "3", "--budget", "25"], "1 to 8"),
        (["--seed", "-1"], "seed: "),
        (["--tokens", "140"], "at most 128"),
        (["--positions", "slot", "--policy", "nobody"], "there is no policy"),
    ],
)
def test_the_command_refuses_in_one_line(folder, tmp_path, capsys, extra, words):
    command = ["live", str(folder), "--text", str(folder / "text.txt"), "--tokens", "30"]
    assert main([*command, "--out", str(tmp_path / "out"), *extra]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert words in error and error.startswith("h2o-theory:")
    assert not (tmp_path / "out").exists()


def test_the_command_exits_1_when_a_cell_failed(folder, tmp_path, capsys, monkeypatch):
    def short_of_memory(*args, **options):
        raise MemoryError("no more")

    monkeypatch.setattr(campaign_module, "evaluate", short_of_memory)
    command = ["live", str(folder), "--text", str(folder / "text.txt"), "--tokens", "30"]
    command += ["--policy", "h2o", "--budget", "5", "--out", str(tmp_path / "out")]
    assert main(command) == 1
    assert "failed: h2o at 5, window 0: no more" in capsys.readouterr().err
