"""``h2o-theory record`` from the command line, on a tiny model in place of a loaded one."""

import json

import pytest
from recorder_models import Letters, leftovers, tiny_model

import h2o_theory.recorder
from h2o_theory.cli import main
from h2o_theory.recorder.models import LoadedModel
from h2o_theory.trace import open_trace, predict_bytes, validate


@pytest.fixture
def record(tmp_path, monkeypatch, capsys):
    """Run the verb on a file of the given content; returns exit code, stdout and stderr."""
    asked = {}

    def load_model(name, **options):
        asked.update(options)
        model = tiny_model("llama", dtype=options["dtype"], attention=options["attention"])
        model.generation_config.eos_token_id = None
        return LoadedModel(model, Letters(), name, "llama", "r7", "test")

    monkeypatch.setattr(h2o_theory.recorder, "load_model", load_model)

    def run(content, *options):
        text = tmp_path / "text.txt"
        text.write_text(content, encoding="utf-8")
        out = tmp_path / "out"
        code = main(["record", "tiny", "--text", str(text), "--out", str(out), *options])
        return code, *capsys.readouterr()

    run.out, run.asked = tmp_path / "out", asked
    return run


def test_the_size_the_progress_and_the_report(record):
    code, out, err = record("abcdefghijklmnop", "--tokens", "12", "--piece", "5")
    assert code == 0 and out == f"{record.out}\n"
    trace = open_trace(record.out)
    size, *rest = err.splitlines()
    assert size.startswith(f"to write: {predict_bytes(trace.spec) / 1e6:.1f} MB, 12 tokens")
    assert "packed attention rows" in size
    assert rest[:3] == [
        "tokens 0 to 4, layers: 3 of 3",
        "tokens 5 to 9, layers: 3 of 3",
        "tokens 10 to 11, layers: 3 of 3",
    ]
    assert "12 tokens in 3 layers" in rest[3] and trace.spec.token_strings is None
    assert record.asked == {"device": "cpu", "dtype": "float32", "attention": None}


def test_a_whole_text_filtered_in_half_precision(record):
    options = ["--layers", "0,2", "--kv-heads", "1", "--store", "qk", "--dtype", "bfloat16"]
    assert record("abcdefgh", *options, "--attention", "eager")[0] == 0
    trace = open_trace(record.out)
    assert (trace.tokens, trace.layers, trace.kv_heads(0)) == (8, (0, 2), (1,))
    assert trace.spec.dtype == "bfloat16" and not trace.has_values(0)
    assert trace.spec.model["attention"] == "eager" and trace.spec.model["revision"] == "r7"


def test_rows_in_a_storage_dtype(record):
    code, _, err = record("abcdefgh", "--store", "attention", "--store-dtype", "float16")
    assert code == 0 and "packed" not in err
    assert open_trace(record.out).spec.content == "attention"
    assert validate(open_trace(record.out)).rows > 0


def test_what_rounding_to_a_storage_dtype_costs_is_said(record):
    _, _, err = record("abcdefgh", "--store-dtype", "bfloat16")
    stored = float(err.strip().rsplit("as stored ", 1)[1])
    assert 1e-4 < stored < 0.1


def test_a_killed_recording_is_gone_on_with(record, tmp_path):
    """As a kill leaves it: all segments there, the manifest not sealed."""
    options = ["--tokens", "12", "--piece", "5"]
    assert record("abcdefghijklmnop", *options)[0] == 0
    whole = open_trace(record.out).trace_id
    unfinished = record.out.rename(tmp_path / "out.unfinished")
    text = (unfinished / "spec.json").read_text().replace('"complete"', '"recording"')
    (unfinished / "spec.json").write_text(text)
    lines = (unfinished / "manifest.jsonl").read_text().splitlines(keepends=True)
    (unfinished / "manifest.jsonl").write_text("".join(lines[:-1]))
    record.asked.clear()
    code, _, err = record("abcdefghijklmnop", *options)
    assert code == 2 and "UnfinishedTrace" in err and "--resume" in err
    assert record.asked == {}, "refused before the model was loaded"
    code, _, err = record("abcdefghijklmnop", *options, "--resume")
    assert code == 0 and f"{len(lines) - 1} segments of the unfinished recording kept" in err
    assert open_trace(record.out).trace_id == whole and not unfinished.exists()
    code, _, err = record("abcdefghijklmnop", *options)
    assert code == 2 and "replace the trace with --overwrite" in err


def test_generation(record):
    assert record("abcdefgh", "--generate", "5", "--temperature", "0.7", "--seed", "3")[0] == 0
    spec = open_trace(record.out).spec
    assert (spec.tokens, spec.prompt_length) == (13, 8)
    assert spec.generation["seed"] == 3 and spec.generation["method"] == "sampled"


def test_lines_and_going_on(record):
    lines = "abc\n\ndefgh\nij\n"
    assert record(lines, "--lines", "--tokens", "4", "--texts", "2")[0] == 0
    assert leftovers(record.out) == ["000000", "000001"]
    assert [open_trace(record.out / name).tokens for name in leftovers(record.out)] == [3, 4]
    code, _, err = record(lines, "--lines", "--tokens", "4", "--resume")
    assert code == 0 and "2 of 3 traces were there already" in err
    assert err.splitlines()[0].startswith("to write: ") and " MB, 2 tokens, " in err
    assert leftovers(record.out) == ["000000", "000001", "000002"]
    assert "text 3 of 3, tokens 0 to 1, layers: 3 of 3" in err
    code, _, err = record(lines, "--lines", "--tokens", "4", "--resume")
    assert code == 0 and err.splitlines() == [
        "to write: nothing",
        "3 of 3 traces were there already",
    ]


def test_a_field_of_json_lines(record):
    lines = "\n".join(json.dumps({"id": i, "body": "x" * (i + 2)}) for i in range(3))
    assert record(lines, "--field", "body")[0] == 0
    assert [open_trace(record.out / name).tokens for name in leftovers(record.out)] == [2, 3, 4]


@pytest.mark.parametrize(
    "content, options, match",
    [
        ("abc", ["--tokens", "9"], "TextError: text.txt: the text is shorter"),
        ("abc", ["--tokens", "0"], "tokens must be at least 1"),
        ("abc", ["--texts", "2"], "--lines or --field"),
        ("abc", ["--lines", "--texts", "0"], "--texts must be at least 1"),
        ("abc", ["--lines", "--overwrite"], "--overwrite cannot replace several"),
        ("abc", ["--field", "body"], "a line is not JSON"),
        ("abc", ["--piece", "0"], "--piece must be at least 1"),
        ("abc", ["--temperature", "1"], "--temperature needs tokens to generate"),
        ("abc", ["--top-p", "0.5"], "--top-p needs tokens to generate"),
        ("abc", ["--generate", "3", "--seed", "1"], "--seed has no use in greedy"),
        ("abc", ["--generate", "0"], "new_tokens must be a whole number"),
        ("abc", ["--generate", "3", "--top-p", "7"], "top_p must be a number above 0, at most 1"),
        (
            "abc",
            ["--generate", "3", "--top-p", "0.5", "--seed", "-1"],
            "seed must be a whole number from 0",
        ),
        ("a\n" + "b" * 200, ["--lines"], "tokens of text 2 must fit the model's context"),
        ("abc", ["--kv-heads", "2"], "OutOfRange: kv_heads must be 0 to 1 in this model"),
        ("abc", ["--layers", "3"], "OutOfRange: layers must be 0 to 2 in this model"),
        ("abc", ["--kv-heads", "x"], "--kv-heads"),
    ],
)
def test_mistakes_are_named_and_leave_nothing(record, tmp_path, content, options, match):
    code, out, err = record(content, *options)
    assert code == 2 and out == ""
    assert match in err.splitlines()[-1] and "Traceback" not in err
    assert leftovers(tmp_path) == ["text.txt"]
