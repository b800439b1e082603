"""Texts to traces: pieces, generated tokens, several texts, what is stored of them."""

import numpy as np
import pytest
import torch
from recorder_models import leftovers, own_rows, tokens, traced_rows

from h2o_theory.errors import BadArgument, CannotWrite, OutOfRange, OutputExists, TextError
from h2o_theory.recorder import GenerationSettings, plan_texts, record, record_text, record_texts
from h2o_theory.recorder.models import LoadedModel
from h2o_theory.recorder.reading import read_text, read_texts
from h2o_theory.recorder.tiny import tiny_model
from h2o_theory.trace import Trace, open_trace, predict_bytes, validate

PROSE = "a bb ccc a dddd bb a ccc eeeee a bb ccc dd e f gg hhh i jj k lll mm n"


class Words:
    """A tokenizer of words, each its own length in letters plus three."""

    def __call__(self, text, verbose=True):
        return {"input_ids": [3 + len(word) for word in text.split()]}

    def decode(self, ids):
        return "x" * (ids[0] - 3)


def loaded(family="opt"):
    model = tiny_model(family)
    model.generation_config.eos_token_id = None  # random models end texts at random
    return LoadedModel(model, Words(), "words", family, "r1", "test")


def test_a_generated_text_may_end_early(tmp_path):
    model = loaded("llama")
    free = record_text(model, PROSE, 12, tmp_path / "a", generation=GenerationSettings(10)).path
    end = open_trace(free).spec.token_ids[15]
    model.model.generation_config.eos_token_id = end
    cut = record_text(model, PROSE, 12, tmp_path / "b", generation=GenerationSettings(10)).path
    spec = open_trace(cut).spec
    first = open_trace(free).spec.token_ids.index(end, 12)
    assert spec.token_ids == open_trace(free).spec.token_ids[:first] and spec.prompt_length == 12


def test_recording_a_text(tmp_path):
    steps = []
    recording = record_text(
        loaded(), "a bb a ccc a dd", 5, tmp_path / "t", token_strings=True, text_name="letters",
        progress=lambda *step: steps.append(step),
    )  # fmt: skip
    spec = open_trace(recording.path).spec
    assert spec.token_ids == (4, 5, 4, 6, 4) and spec.token_strings == ("x", "xx", "x", "xxx", "x")
    assert spec.text == {"name": "letters", "characters": 15} and spec.prompt_length == 5
    assert spec.model["id"] == "words" and spec.model["revision"] == "r1"
    assert steps == [(done, 3, "tokens 0 to 4, layers") for done in (1, 2, 3)]
    whole = record_text(loaded().model, "a bb", None, tmp_path / "u", tokenizer=Words())
    assert whole.report.rows == 2


@pytest.mark.parametrize(
    "text, count, error, match",
    [
        ("", 5, TextError, "empty"),
        (" \n ", None, TextError, "empty"),
        (None, 5, TextError, "empty"),
        ("a b c", 4, TextError, "got 3 tokens; expected at least 4"),
        ("a b c", 0, BadArgument, "got 0"),
        ("a b c", 2.0, BadArgument, "whole number"),
        ("a b c", True, BadArgument, "whole number"),
        ("a " * 200, None, BadArgument, "context of 128, got 200"),
    ],
)
def test_bad_texts(tmp_path, text, count, error, match):
    with pytest.raises(error, match=match):
        record_text(loaded(), text, count, tmp_path / "t")
    assert leftovers(tmp_path) == []


def test_a_text_without_a_tokenizer(tmp_path):
    with pytest.raises(BadArgument, match="tokenizer"):
        record_text(tiny_model("opt"), "a b", 2, tmp_path / "t")


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3_text", "gpt_oss"])
@pytest.mark.parametrize("piece", [1, 7, 23, 100])
def test_pieces_give_the_rows_of_one_pass(tmp_path, family, piece):
    model = loaded(family)
    recording = record_text(model, PROSE, None, tmp_path / "t", piece=piece)
    trace = open_trace(recording.path)
    assert trace.tokens == trace.spec.prompt_length == 23 and trace.spec.generation == {}
    expected = own_rows(model.model, torch.tensor([trace.spec.token_ids]))
    for layer in trace.layers:
        assert np.abs(traced_rows(trace, layer) - expected[layer]).max() <= 1e-5


@pytest.mark.parametrize("piece", [None, 5])
@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_greedy_generation(tmp_path, family, piece):
    model = loaded(family)
    recording = record_text(
        model, PROSE, 12, tmp_path / "t", piece=piece, generation=GenerationSettings(10)
    )
    trace = open_trace(recording.path)
    ids = torch.tensor([trace.spec.token_ids])
    assert trace.spec.prompt_length == 12
    assert trace.spec.generation == {"method": "greedy", "new_tokens": 10}
    generated = model.model.generate(ids[:, :12], max_new_tokens=10, do_sample=False)
    assert ids[0].tolist() == generated[0, : ids.shape[1]].tolist() and ids.shape[1] == 22
    expected = own_rows(model.model, ids)
    for layer in trace.layers:
        assert np.abs(traced_rows(trace, layer) - expected[layer]).max() <= 2e-5


def test_sampling_depends_on_its_seed_alone(tmp_path):
    def sampled(name, **choice):
        torch.rand(3)
        before = torch.random.get_rng_state()
        out = record_text(
            loaded("opt"), PROSE, 8, tmp_path / name, generation=GenerationSettings(12, **choice)
        ).path
        assert torch.equal(before, torch.random.get_rng_state())
        return open_trace(out).spec

    first, again = sampled("a", temperature=1.5, seed=5), sampled("b", temperature=1.5, seed=5)
    other, narrow = sampled("c", temperature=1.5, seed=6), sampled("d", top_p=1e-6, seed=1)
    assert first.token_ids == again.token_ids != other.token_ids
    assert first.generation == {
        "method": "sampled", "temperature": 1.5, "top_p": 1.0, "seed": 5, "new_tokens": 12,
    }  # fmt: skip
    greedy = open_trace(
        record_text(loaded("opt"), PROSE, 8, tmp_path / "e", generation=GenerationSettings(12)).path
    ).spec
    assert narrow.token_ids == greedy.token_ids


@pytest.mark.parametrize(
    "options, match",
    [
        ({"new_tokens": 0}, "new_tokens must be .*at least 1, got 0"),
        ({"new_tokens": 3, "temperature": 0.0}, "temperature.*above 0"),
        ({"new_tokens": 3, "temperature": float("nan")}, "temperature"),
        ({"new_tokens": 3, "temperature": float("inf")}, "temperature"),
        ({"new_tokens": 3, "top_p": 1.5}, "top_p.*got 1.5"),
        ({"new_tokens": 3, "top_p": 0.5, "seed": 2**64}, "seed.*below 2\\^63"),
        ({"new_tokens": 3, "top_p": 0.5, "seed": -1}, "seed"),
        ({"new_tokens": "3"}, "new_tokens.*a whole number"),
        ({"new_tokens": 3, "temperature": "hot"}, "temperature.*a number"),
    ],
)
def test_bad_generation(options, match):
    with pytest.raises(BadArgument, match=match):
        GenerationSettings(**options)


@pytest.mark.parametrize("piece", [0, -3, 2.5, True])
def test_bad_pieces(tmp_path, piece):
    with pytest.raises(BadArgument, match="piece must be"):
        record_text(loaded(), PROSE, 5, tmp_path / "t", piece=piece)
    assert leftovers(tmp_path) == []


def test_generation_beyond_the_context(tmp_path):
    with pytest.raises(BadArgument, match="context of 128, got 130"):
        record_text(loaded(), PROSE, 10, tmp_path / "t", generation=GenerationSettings(120))


def test_several_texts(tmp_path):
    texts, steps = ["a bb ccc", "dd e f gg hhh i", "j"], []
    recordings = record_texts(
        loaded("llama"), texts, 4, tmp_path / "all", text_name="set",
        progress=lambda *step: steps.append(step),
    )  # fmt: skip
    assert leftovers(tmp_path / "all") == ["000000", "000001", "000002"]
    specs = [open_trace(recording.path).spec for recording in recordings]
    assert [spec.tokens for spec in specs] == [3, 4, 1]
    assert specs[1].token_ids == (5, 4, 4, 5)
    assert specs[1].text == {"name": "set", "characters": 15, "sequence": 1, "sequences": 3}
    assert steps[0] == (1, 3, "text 1 of 3, tokens 0 to 2, layers")
    with pytest.raises(OutputExists, match="resume"):
        record_texts(loaded("llama"), texts, 4, tmp_path / "all")


def test_several_texts_are_gone_on_with(tmp_path):
    texts = ["a bb ccc", "dd e f", "j kk"]
    first = record_texts(loaded(), texts[:2], None, tmp_path / "all", text_name="set")
    written = [open_trace(recording.path).trace_id for recording in first]
    rest = record_texts(loaded(), texts, None, tmp_path / "all", text_name="set", resume=True)
    assert [recording.path.name for recording in rest] == ["000002"]
    assert [open_trace(tmp_path / "all" / f"00000{i}").trace_id for i in range(2)] == written
    with pytest.raises(OutputExists, match="another text"):
        record_texts(loaded(), ["x y z"], None, tmp_path / "all", resume=True)


@pytest.mark.parametrize(
    "options, match",
    [
        ({"layers": [0, 2]}, "other layers, heads or content"),
        ({"kv_heads": [1]}, "other layers, heads or content"),
        ({"store": "qk"}, "other layers, heads or content"),
        ({"store": "attention"}, "other layers, heads or content"),
        ({"store_dtype": "float16"}, "another dtype"),
        ({"generation": GenerationSettings(3)}, "other generated tokens"),
        ({"model_provenance": {"id": "other"}}, "another model"),
    ],
)
def test_a_set_is_gone_on_with_by_the_same_options_only(tmp_path, options, match):
    """Else the set would mix traces that nothing tells apart."""
    texts = ["a bb ccc", "dd e f"]
    record_texts(loaded(), texts[:1], None, tmp_path / "all")
    with pytest.raises(OutputExists, match=match):
        record_texts(loaded(), texts, None, tmp_path / "all", resume=True, **options)
    with pytest.raises(OutputExists, match="another text"):
        record_texts(loaded(), texts, 2, tmp_path / "all", resume=True)
    with pytest.raises(OutputExists, match="another model"):
        record_texts(loaded("llama"), texts, None, tmp_path / "all", resume=True)
    assert leftovers(tmp_path / "all") == ["000000"]


@pytest.mark.parametrize(
    "generation", [None, GenerationSettings(4), GenerationSettings(4, top_p=0.9, seed=2)]
)
def test_what_was_recorded_the_same_way_is_skipped(tmp_path, generation):
    options = {"layers": [1], "store": "attention", "generation": generation}
    first = record_texts(loaded("llama"), ["a bb ccc"], None, tmp_path / "all", **options)
    again = record_texts(
        loaded("llama"), ["a bb ccc", "dd"], None, tmp_path / "all", resume=True, **options
    )
    assert [recording.path.name for recording in first + again] == ["000000", "000001"]


def test_an_imported_trace_is_no_text_that_was_recorded(tmp_path):
    rows = np.tril(np.ones((1, 2, 3, 3))) / np.arange(1, 4)[:, None]
    Trace.from_attention(rows).save(tmp_path / "all" / "000000")
    with pytest.raises(OutputExists, match="another text"):
        record_texts(loaded(), ["a bb ccc"], None, tmp_path / "all", resume=True)


def test_the_context_is_checked_for_all_texts_before_the_first(tmp_path):
    with pytest.raises(BadArgument, match="text 2 must fit.*128, got 200.*--tokens"):
        record_texts(loaded(), ["a b c", "a " * 200], None, tmp_path / "all")
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    "texts, match", [([], "set: at least one text"), (["a", " "], "set, text 2: .*empty")]
)
def test_bad_sets_of_texts(tmp_path, texts, match):
    with pytest.raises(TextError, match=match):
        record_texts(loaded(), texts, None, tmp_path / "all", text_name="set")
    assert leftovers(tmp_path) == []


def test_room_for_all_texts_is_checked_before_the_first(tmp_path, monkeypatch):
    texts = ["a bb ccc dd e f"] * 400
    one = predict_bytes(plan_texts(loaded(), texts[:1], None)[0])
    usage = lambda place: type("usage", (), {"free": (64 << 20) + 100 * one})  # noqa: E731
    monkeypatch.setattr("shutil.disk_usage", usage)
    with pytest.raises(CannotWrite):
        record_texts(loaded(), texts, None, tmp_path / "all")
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("store", ["qkv", "qk", "attention"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "gpt_bigcode"])
def test_the_size_is_known_before(tmp_path, family, store):
    """Every tensor byte is predicted; headers and token ids come on top."""
    options = {"layers": [0, 2], "store": store}
    generation = GenerationSettings(9)
    (plan,) = plan_texts(
        loaded(family), [PROSE], 12, several=False, generation=generation, **options
    )
    recording = record_text(
        loaded(family), PROSE, 12, tmp_path / "t", generation=generation, **options
    )
    spec = open_trace(recording.path).spec
    assert predict_bytes(plan) == predict_bytes(spec) and plan.tokens == spec.tokens == 21
    assert 0 < recording.report.bytes - predict_bytes(plan) < 20_000


@pytest.mark.parametrize("store", ["qkv", "attention"])
@pytest.mark.parametrize("family", ["llama", "gpt_oss"])
def test_chosen_kv_heads(tmp_path, family, store):
    model, ids = tiny_model(family), tokens(20)
    with torch.no_grad(), record(model, tmp_path / "t", kv_heads=[1], store=store):
        model(ids)
    trace, expected = open_trace(tmp_path / "t"), own_rows(model, ids)
    for layer in trace.layers:
        spec = trace.layer(layer)
        assert (spec.kv_heads, spec.q_heads, spec.kv_head_ids) == (1, 2, (1,))
        assert np.abs(trace.rows(layer, 1) - expected[layer, 2:]).max() <= 1e-5
        assert trace.values(layer, 1).shape == (20, spec.value_dim)
        with pytest.raises(OutOfRange):
            trace.rows(layer, 0)
    assert validate(trace).kv_heads == 3


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "gpt_oss"])
@pytest.mark.parametrize("piece", [None, 9])
def test_rows_stored_instead_of_queries_and_keys(tmp_path, family, piece, monkeypatch):
    monkeypatch.setattr("h2o_theory.recorder.sequence.PACK_ROWS", 8)
    model = loaded(family)
    rows = record_text(model, PROSE, None, tmp_path / "a", store="attention", piece=piece)
    tensors = record_text(model, PROSE, None, tmp_path / "q", piece=piece)
    rows, tensors = open_trace(rows.path), open_trace(tensors.path)
    assert rows.spec.content == "attention" and rows.spec.dtype == "float32"
    for layer in rows.layers:
        assert np.abs(traced_rows(rows, layer) - traced_rows(tensors, layer)).max() < 1e-7
        assert np.array_equal(rows.values(layer, 0), tensors.values(layer, 0))
    validate(rows)
    assert rows.spec.layers[0].head_dim == 0


def test_rows_of_a_half_precision_model_are_stored_in_float32(tmp_path):
    model, ids = tiny_model("llama", dtype="bfloat16"), tokens(12)
    with torch.no_grad(), record(model, tmp_path / "t", store="attention"):
        model(ids)
    trace = open_trace(tmp_path / "t")
    assert trace.spec.dtype == "float32" and trace.spec.model["dtype"] == "bfloat16"
    assert validate(trace).worst_row_sum_error < 1e-6


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_texts_of_a_file(tmp_path):
    lines = write(tmp_path / "lines.txt", "first one\n\n  \nsecond one\n")
    assert read_text(lines).startswith("first one")
    assert read_texts(lines) == ["first one", "second one"]
    entries = '{"text": "first", "id": 1}\n\n{"id": 2, "text": "zwei \\u00fc\\n"}\n'
    assert read_texts(write(tmp_path / "set.jsonl", entries), "text") == ["first", "zwei ü\n"]


@pytest.mark.parametrize(
    "content, match",
    [
        ("", "empty"),
        ('{"text": "a"}\n{"text": \n', "line 2.*expected"),
        ('{"text": "a"}\n\n{"body": "b"}\n', "line 3: .*field text.*got body"),
        ('["a"]\n', "field text.*got list"),
        ('{"text": "  "}\n', "no text in the field"),
        ('{"text": 3}\n', "no text in the field"),
    ],
)
def test_bad_files_of_texts(tmp_path, content, match):
    with pytest.raises(TextError, match=match):
        read_texts(write(tmp_path / "set.jsonl", content), "text")


def test_a_byte_order_mark_and_separators_inside_a_line(tmp_path):
    """U+2028 and U+0085 are allowed inside JSON strings and end no line of a file."""
    inside = "one\u2028two\u0085three"
    path = tmp_path / "set.jsonl"
    path.write_bytes(f'\ufeff{{"text": "{inside}"}}\r\n{{"text": "b"}}\r\n'.encode())
    assert read_texts(path, "text") == [inside, "b"]
    assert read_texts(write(path, f"\ufeff{inside}\nb\n")) == [inside, "b"]
    assert read_text(path) == f"{inside}\nb\n"


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(TextError, match="No such file"):
        read_text(tmp_path / "none.txt")
    (tmp_path / "bytes").write_bytes(b"abc \xff")
    with pytest.raises(TextError, match="not UTF-8.*byte 4"):
        read_texts(tmp_path / "bytes")
