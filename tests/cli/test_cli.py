"""The command line: what it prints, what it refuses, and that a refusal is one named line."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import reference
from commands import refused

from h2o_theory.cli import main
from h2o_theory.cli.common import print_json
from h2o_theory.trace import LayerSpec, Trace, TraceSpec, TraceWriter

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    rng = np.random.default_rng(0)
    rows = np.stack([reference.softmax_rows(rng, 4, 40) for _ in range(2)])
    values = rng.normal(size=(2, 2, 40, 4))
    made = Trace.from_attention(rows, kv_heads=2, values=values, model={"id": "made-up"})
    return str(made.save(tmp_path_factory.mktemp("cli") / "small.trace"))


def test_replay_prints_a_table_and_saves_results(trace, tmp_path, capsys):
    out = tmp_path / "results.parquet"
    assert main(["replay", trace, "--budget", "10%,20%", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    table = pd.read_parquet(out)
    for policy in table.policy.unique():
        assert policy in printed
    caches = table[table.policy != "full"]
    assert (caches.approximation_ratio <= 1).all()
    assert (caches[caches.policy == "optimum"].approximation_ratio == 1).all()
    assert len(table) == 4 * (12 * 2 + 1)
    assert table.attrs["provenance"]["model"] == "made-up"


def test_replay_as_json(trace, capsys):
    arguments = ["replay", trace, "--policy", "h2o,full", "--budget", "4", "--json"]
    assert main([*arguments, "--layers", "1", "--kv-heads", "0"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["policy"] for row in rows} == {"h2o", "full"}
    assert rows[1]["approximation_ratio"] is None and rows[0]["layer"] == 1


def test_report_from_saved_results(trace, tmp_path, capsys):
    results, report = tmp_path / "r.csv", tmp_path / "report"
    assert main(["replay", trace, "--budget", "10%", "--out", str(results)]) == 0
    capsys.readouterr()
    assert main(["report", str(results), "--out", str(report)]) == 0
    page = Path(capsys.readouterr().out.strip())
    assert page.is_file() and page.parent == report
    refused(capsys, ["report", str(results), "--out", str(report)], "OutputExists", str(report))


@pytest.mark.parametrize("verb", ["info", "validate", "replay"])
def test_an_unfinished_recording_is_no_trace(tmp_path, capsys, verb):
    plan = TraceSpec(40, (LayerSpec(0, 1, 1, 2, 0, 1.0),))
    writer = TraceWriter(tmp_path / "t", plan=plan)
    part = {"0.q": np.ones((1, 9, 2), "f4"), "0.k": np.ones((1, 9, 2), "f4")}
    part |= {"0.lo": np.zeros(9, "i4"), "0.hi": np.arange(1, 10, dtype="i4")}
    writer.add_segment(part, start=0, stop=9, layers=[0])
    for place in ("t", "t.unfinished"):
        words = ["1 segment;", "token 9 of 40", "--resume", "--overwrite"]
        refused(capsys, [verb, str(tmp_path / place)], "UnfinishedTrace", *words)


def test_info_and_validate(trace, capsys):
    assert main(["info", trace]) == 0
    assert "made-up" in capsys.readouterr().out
    assert main(["info", trace, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["spec"]["tokens"] == 40
    assert main(["validate", trace]) == 0
    assert capsys.readouterr().out.startswith("valid: 2 segments, 4 kv_heads")


def test_ls_policies(capsys):
    assert main(["ls", "policies"]) == 0
    printed = capsys.readouterr().out
    for name in ("h2o", "tova", "belady_mass", "optimum", "clairvoyant"):
        assert name in printed


def test_module_runs_as_a_program(trace):
    command = [sys.executable, "-m", "h2o_theory", "replay", trace, "--policy", "nope"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("h2o-theory: UnknownName: ") and "Traceback" not in done.stderr


BAD_REPLAYS = {
    "unknown policy": (["--policy", "h20"], "UnknownName", ["h20", "Did you mean h2o"]),
    "bad parameter": (
        ["--policy", "h2o:recent=7"],
        "BadArgument",
        ["h2o: recent must be", "0 to 1"],
    ),
    "twice": (["--policy", "lru,lru"], "BadArgument", ["twice"]),
    "zero": (["--budget", "0"], "BadBudget", ["at least 1"]),
    "zero percent": (["--budget", "0%"], "BadBudget", ["more than 0%"]),
    "above T": (["--budget", "41"], "BadBudget", ["1 to 40"]),
    "typo": (["--budget", "12,1o"], "BadBudget", ["1o"]),
    "layer": (["--layers", "2"], "OutOfRange", ["layer 2", "0-1"]),
    "head": (["--kv-heads", "0,2"], "OutOfRange", ["kv_head", "0 or 1"]),
    "list": (["--layers", "one"], "BadArgument", ["--layers", "one"]),
    "prefill": (["--prefill", "40"], "OutOfRange", ["prefill", "0 to 39"]),
    "workers": (["--workers", "0"], "BadArgument", ["workers"]),
}


@pytest.mark.parametrize("fault", BAD_REPLAYS)
def test_bad_input_is_one_named_line(trace, capsys, tmp_path, fault):
    arguments, name, words = BAD_REPLAYS[fault]
    out = tmp_path / "results.parquet"
    refused(capsys, ["replay", trace, *arguments, "--out", str(out)], name, *words)
    assert list(tmp_path.iterdir()) == []


def test_bad_places(trace, capsys, tmp_path):
    refused(capsys, ["replay", str(tmp_path / "none")], "TraceNotFound", "none", "record")
    refused(capsys, ["validate", str(tmp_path)], "TraceNotFound", "not a trace")
    existing = tmp_path / "results.csv"
    existing.write_text("mine")
    line = ["replay", trace, "--out", str(existing)]
    refused(capsys, line, "OutputExists", "results.csv")
    assert existing.read_text() == "mine"
    refused(
        capsys, ["report", str(tmp_path / "no.csv"), "--out", str(tmp_path / "r")], "BadArgument"
    )
    refused(capsys, ["replay", trace, "--out", str(tmp_path / "results.xls")], "BadArgument")


def test_damaged_trace(trace, capsys, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(trace, copy)
    segment = copy / "seg-000001.safetensors"
    data = bytearray(segment.read_bytes())
    data[-1] ^= 255
    segment.write_bytes(data)
    refused(capsys, ["replay", str(copy), "--workers", "1"], "CorruptTrace", "seg-000001")
    refused(capsys, ["validate", str(copy)], "CorruptTrace", "seg-000001")


def test_bad_texts(capsys, tmp_path):
    out = str(tmp_path / "t")

    def record(text, *more):
        return ["record", "smollm2-135m", "--text", str(text), "--tokens", "8", "--out", out, *more]

    refused(capsys, record(tmp_path / "none.txt"), "TextError", "none.txt")
    (tmp_path / "empty.txt").write_text(" \n")
    refused(capsys, record(tmp_path / "empty.txt"), "TextError", "empty")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    refused(capsys, record(tmp_path / "latin.txt"), "TextError", "UTF-8")
    (tmp_path / "good.txt").write_text("a good text")
    refused(capsys, record(tmp_path / "good.txt", "--layers", "x"), "BadArgument", "--layers")
    assert not Path(out).exists()


def test_taken_places_are_refused_before_any_work(capsys, tmp_path):
    (tmp_path / "good.txt").write_text("a good text")
    (tmp_path / "taken").mkdir()
    line = ["record", "no/such-model", "--text", str(tmp_path / "good.txt"), "--tokens", "2"]
    refused(capsys, [*line, "--out", str(tmp_path / "taken")], "OutputExists", "taken")
    (tmp_path / "results.parquet").write_text("mine")
    refused(capsys, ["demo", "--out", str(tmp_path)], "OutputExists", "results.parquet")
    assert (tmp_path / "results.parquet").read_text() == "mine"


def test_json_has_neither_nan_nor_infinity(capsys):
    numbers = {"a": [1, 2], "kl": [np.inf, 0.5], "x": [np.nan, -np.inf]}
    table = pd.DataFrame(numbers | {"t": ["u", "v"]})
    print_json({"table": table, "list": (np.float64(np.nan), 3, None)})
    assert json.loads(capsys.readouterr().out) == {
        "table": [
            {"a": 1, "kl": None, "x": None, "t": "u"},
            {"a": 2, "kl": 0.5, "x": None, "t": "v"},
        ],
        "list": [None, 3, None],
    }
