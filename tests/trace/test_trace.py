"""The trace: what is written is what is read, and nothing damaged is ever half-read."""

import json
import os
import shutil

import numpy as np
import pytest
import reference
import safetensors.numpy

from h2o_theory.engine import replay
from h2o_theory.errors import (
    BadArgument,
    CannotWrite,
    CorruptTrace,
    InvalidAttention,
    OutOfRange,
    OutputExists,
    TraceNotFound,
)
from h2o_theory.trace import LayerSpec, Trace, TraceSpec, TraceWriter, open_trace, validate
from h2o_theory.trace.manifest import end_line, parse_manifest, to_line
from h2o_theory.trace.segments import sha256_of

TOKENS = 23


def attention(layers=2, q_heads=4, tokens=TOKENS):
    rng = np.random.default_rng(0)
    return np.stack([reference.softmax_rows(rng, q_heads, tokens) for _ in range(layers)])


def write_qkv(path, *, cuts=(0, 9, TOKENS), dtype=np.float32, **options):
    """A two-layer trace from random queries and keys, in segments; returns the tensors."""
    rng = np.random.default_rng(1)
    full = {}
    for layer in (2, 5):
        for kind, heads in (("q", 4), ("k", 2), ("v", 2)):
            full[f"{layer}.{kind}"] = rng.normal(size=(heads, TOKENS, 8)).astype(dtype)
        full[f"{layer}.lo"] = np.zeros(TOKENS, dtype=np.int32)
        full[f"{layer}.hi"] = np.arange(1, TOKENS + 1, dtype=np.int32)
    layers = tuple(LayerSpec(layer, 4, 2, 8, 8, 8**-0.5) for layer in (2, 5))
    spec = TraceSpec(tokens=TOKENS, layers=layers, dtype=np.dtype(dtype).name, **options)
    with TraceWriter(path) as writer:
        for start, stop in zip(cuts, cuts[1:], strict=False):
            part = {
                name: array[start:stop] if array.ndim == 1 else array[:, start:stop]
                for name, array in full.items()
            }
            writer.add_segment(part, start=start, stop=stop, layers=[2, 5])
        writer.commit(spec)
    return full


def expected_rows(full, layer, kv_head):
    queries = full[f"{layer}.q"][2 * kv_head : 2 * kv_head + 2].astype(np.float64)
    logits = queries @ full[f"{layer}.k"][kv_head].astype(np.float64).T / np.sqrt(8)
    logits[:, np.triu(np.ones((TOKENS, TOKENS), dtype=bool), k=1)] = -np.inf
    rows = np.exp(logits)
    return rows / rows.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("cuts", [(0, TOKENS), (0, 9, TOKENS), (0, 1, 2, 20, TOKENS)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_rows_are_the_softmax_of_what_was_written(tmp_path, cuts, dtype):
    full = write_qkv(tmp_path / "t", cuts=cuts, dtype=dtype)
    trace = open_trace(tmp_path / "t")
    for layer in (2, 5):
        for kv_head in (0, 1):
            rows = expected_rows(full, layer, kv_head)
            assert np.abs(trace.rows(layer, kv_head) - rows).max() < 1e-14
            assert np.abs(trace.rows(layer, kv_head, 5, 11) - rows[:, 5:11]).max() < 1e-14
            assert np.array_equal(trace.values(layer, kv_head), full[f"{layer}.v"][kv_head])
            blocks = list(trace.blocks(layer, kv_head, 7))
            assert [start for start, _ in blocks] == [0, 7, 14, 21]
            assert np.allclose(np.concatenate([b for _, b in blocks], axis=1), rows, atol=1e-14)
    report = validate(trace)
    assert (report.segments, report.kv_heads, report.rows) == (len(cuts) - 1, 4, 4 * 2 * TOKENS)


def test_bfloat16_is_stored_as_such_and_read_as_float(tmp_path):
    numbers = np.array([1.0, -2.5, 3.140625, 0.0078125], dtype=np.float32).reshape(1, 4, 1)
    bits = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    tensors = {
        "0.q": bits,
        "0.k": bits,
        "0.lo": np.zeros(4, "i4"),
        "0.hi": np.arange(1, 5, dtype="i4"),
    }
    spec = TraceSpec(4, (LayerSpec(0, 1, 1, 1, 0, 1.0),), dtype="bfloat16")
    with TraceWriter(tmp_path / "b") as writer:
        dtypes = {"0.q": "bfloat16", "0.k": "bfloat16"}
        writer.add_segment(tensors, start=0, stop=4, layers=[0], dtypes=dtypes)
        writer.commit(spec)
    trace = open_trace(tmp_path / "b")
    assert np.array_equal(trace.queries(0, 0), numbers)
    copy = open_trace(trace.save(tmp_path / "copy"))
    assert np.array_equal(copy.keys(0, 0), numbers[0])
    header = (tmp_path / "copy" / "seg-000000.safetensors").read_bytes()[8:300]
    assert b"BF16" in header


def test_visible_intervals_and_softcap(tmp_path):
    rng = np.random.default_rng(2)
    q, k = rng.normal(size=(2, 1, 12, 4)).astype(np.float32)
    lo = np.maximum(np.arange(12) - 3, 0).astype(np.int32)
    tensors = {"0.q": q, "0.k": k, "0.lo": lo, "0.hi": np.arange(1, 13, dtype=np.int32)}
    spec = TraceSpec(12, (LayerSpec(0, 1, 1, 4, 0, 0.7, softcap=2.0, sliding_window=4),))
    with TraceWriter(tmp_path / "w") as writer:
        writer.add_segment(tensors, start=0, stop=12, layers=[0])
        writer.commit(spec)
    rows = open_trace(tmp_path / "w").rows(0, 0)[0]
    for t in range(12):
        keys = range(max(0, t - 3), t + 1)
        weights = [np.exp(2 * np.tanh(0.7 * float(q[0, t] @ k[0, j]) / 2)) for j in keys]
        assert np.allclose(rows[t, list(keys)], np.array(weights) / sum(weights), atol=1e-6)
        assert rows[t].sum() == pytest.approx(1) and (rows[t, : max(0, t - 3)] == 0).all()


def write_one_layer(path, layer, tensors, tokens, **options):
    """A trace of one layer in one segment."""
    with TraceWriter(path) as writer:
        writer.add_segment(tensors, start=0, stop=tokens, layers=[layer.layer])
        writer.commit(TraceSpec(tokens, (layer,), **options))
    return open_trace(path)


def test_sinks_take_their_share_of_every_row(tmp_path):
    rng = np.random.default_rng(4)
    q, k = rng.normal(size=(4, 12, 4)).astype("f4"), rng.normal(size=(2, 12, 4)).astype("f4")
    sinks = (0.5, -1.0, 40.0, -900.0)
    interval = {"0.lo": np.zeros(12, "i4"), "0.hi": np.arange(1, 13, dtype="i4")}
    layer = LayerSpec(0, 4, 2, 4, 0, 0.5, sinks=sinks)
    trace = write_one_layer(tmp_path / "s", layer, {"0.q": q, "0.k": k} | interval, 12)
    for head in range(4):
        rows = trace.rows(0, head // 2)[head % 2]
        for t in range(12):
            logits = [0.5 * float(q[head, t].astype("f8") @ k[head // 2, j]) for j in range(t + 1)]
            weights = np.exp(np.array([*logits, sinks[head]]) - max(*logits, sinks[head]))
            assert np.allclose(rows[t, : t + 1], (weights / weights.sum())[:-1], atol=1e-15)
    assert validate(trace).rows == 4 * 12
    assert trace.rows(0, 1)[0].sum() < 1e-10 and np.allclose(trace.rows(0, 1)[1].sum(axis=-1), 1)


def test_a_subset_of_heads_keeps_the_numbers_of_the_model(tmp_path):
    rng = np.random.default_rng(5)
    q, k, v = (rng.normal(size=(n, 9, d)).astype("f4") for n, d in ((4, 4), (2, 4), (2, 6)))
    tensors = {"0.q": q, "0.k": k, "0.v": v}
    tensors |= {"0.lo": np.zeros(9, "i4"), "0.hi": np.arange(1, 10, dtype="i4")}
    layer = LayerSpec(0, 4, 2, 4, 6, 0.5, kv_head_ids=(3, 7))
    trace = write_one_layer(tmp_path / "h", layer, tensors, 9)
    assert trace.kv_heads(0) == (3, 7)
    assert np.array_equal(trace.keys(0, 7), k[1]) and np.array_equal(trace.values(0, 3), v[0])
    assert np.array_equal(trace.queries(0, 7), q[2:])
    with pytest.raises(OutOfRange, match="3, 7"):
        trace.rows(0, 0)
    table = replay(trace, "h2o,optimum", "3")
    assert sorted(set(table.kv_head)) == [3, 7]
    assert set(replay(trace, "h2o", "3", kv_heads=[7]).kv_head) == {7}
    with pytest.raises(OutOfRange, match="3 or 7"):
        replay(trace, "h2o", "3", kv_heads=[1])


@pytest.mark.parametrize(
    "wrong", [{"q_heads": 5}, {"kv_head_ids": (1, 1)}, {"kv_head_ids": (1,)}, {"sinks": (0.0,)}]
)
def test_heads_that_do_not_fit_together_are_refused(wrong):
    fields = {"layer": 3, "q_heads": 4, "kv_heads": 2, "head_dim": 4, "value_dim": 4}
    with pytest.raises(BadArgument, match="layer 3"):
        LayerSpec(scaling=1.0, **fields | wrong)


def test_segments_are_ordinary_safetensors(tmp_path):
    full = write_qkv(tmp_path / "t", cuts=(0, TOKENS))
    loaded = safetensors.numpy.load_file(tmp_path / "t" / "seg-000000.safetensors")
    assert loaded.keys() == full.keys()
    assert all(np.array_equal(loaded[name], full[name]) for name in full)


def test_from_attention_and_save(tmp_path):
    rows = attention()
    values = np.random.default_rng(3).normal(size=(2, 2, TOKENS, 5))
    made = Trace.from_attention(rows, kv_heads=2, values=values, layers=[1, 4], name="made")
    saved = open_trace(made.save(tmp_path / "saved"))
    for trace in (made, saved):
        assert trace.layers == (1, 4) and trace.tokens == TOKENS
        assert np.allclose(trace.rows(4, 1), rows[1, 2:4], atol=1e-15)
        assert np.allclose(trace.rows(4, 1, 3, 8), rows[1, 2:4, 3:8], atol=1e-15)
        assert np.array_equal(trace.values(1, 0), values[0, 0])
    assert saved.info()["layers"] == "1, 4"
    assert validate(saved).rows == 2 * 4 * TOKENS


def test_trace_id_follows_the_content(tmp_path):
    write_qkv(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    first, copy = open_trace(tmp_path / "a"), open_trace(tmp_path / "b")
    assert first.trace_id == copy.trace_id and first.name != copy.name
    rows = attention()
    other = rows.copy()
    other[0, 0, 5, :2] = other[0, 0, 5, 1::-1]
    assert Trace.from_attention(rows).trace_id != Trace.from_attention(other).trace_id


BAD = {
    "NaN": (lambda a: a.__setitem__((0, 1, 4, 2), np.nan), "layer 0, head 1, row 4, key 2"),
    "infinite": (lambda a: a.__setitem__((1, 0, 4, 2), np.inf), "layer 1, head 0, row 4, key 2"),
    "negative": (lambda a: a.__setitem__((0, 2, 6, 1), -0.25), "layer 0, head 2, row 6, key 1"),
    "future": (lambda a: a.__setitem__((1, 3, 6, 7), 0.25), "layer 1, head 3, row 6, key 7"),
    "sum to one": (lambda a: a[0, 0, 9].__imul__(1.01), "layer 0, head 0, row 9"),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_attention_is_refused_with_its_place(fault):
    rows = attention()
    spoil, place = BAD[fault]
    spoil(rows)
    with pytest.raises(InvalidAttention) as caught:
        Trace.from_attention(rows)
    assert fault in str(caught.value) and place in str(caught.value)


@pytest.mark.parametrize(
    "rows", [np.ones((2, 3, 3)), np.ones((1, 1, 3, 4)), np.ones((1, 0, 3, 3)), np.eye(3, dtype=int)]
)
def test_bad_shapes_are_refused(rows):
    with pytest.raises(InvalidAttention, match="shape"):
        Trace.from_attention(rows)


def test_bad_dtype_and_options_are_refused():
    with pytest.raises(InvalidAttention, match="dtype"):
        Trace.from_attention(np.eye(3, dtype=int)[None, None])
    with pytest.raises(BadArgument, match="kv_heads"):
        Trace.from_attention(attention(), kv_heads=3)
    with pytest.raises(BadArgument, match="layers"):
        Trace.from_attention(attention(), layers=[1, 1])
    with pytest.raises(BadArgument, match="values"):
        Trace.from_attention(attention(), values=np.ones((2, 4, 3, 8)))


def test_half_precision_rounding_is_accepted_and_rescaled():
    rows = attention().astype(np.float16)
    trace = Trace.from_attention(rows)
    assert np.abs(trace.rows(0, 0).sum(axis=-1) - 1).max() < 1e-12


def test_out_of_range(tmp_path):
    write_qkv(tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    for call, words in (
        (lambda: trace.rows(3, 0), "layer 3"),
        (lambda: trace.rows(2, 2), "kv_head"),
        (lambda: trace.rows(2, 0, 5, TOKENS + 1), "rows"),
        (lambda: trace.rows(2, -1), "kv_head"),
    ):
        with pytest.raises(OutOfRange, match=words):
            call()


def test_missing_values_are_said_to_be_missing():
    with pytest.raises(BadArgument, match="no values"):
        Trace.from_attention(attention()).values(0, 0)


def test_not_a_trace(tmp_path):
    with pytest.raises(TraceNotFound, match="no such trace"):
        open_trace(tmp_path / "nowhere")
    (tmp_path / "folder").mkdir()
    with pytest.raises(TraceNotFound, match="not a trace"):
        open_trace(tmp_path / "folder")


def flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def damage_spec(path):
    spec = json.loads((path / "spec.json").read_text())
    spec["layers"][0]["scaling"] = 0.5
    (path / "spec.json").write_text(json.dumps(spec))


DAMAGE = {
    "flipped byte": lambda p: flip(p / "seg-000001.safetensors", -5),
    "flipped header": lambda p: flip(p / "seg-000000.safetensors", 20),
    "truncated": lambda p: os.truncate(p / "seg-000001.safetensors", 500),
    "extended": lambda p: (p / "seg-000001.safetensors").open("ab").write(b"0"),
    "missing segment": lambda p: (p / "seg-000000.safetensors").unlink(),
    "swapped segments": lambda p: (
        (p / "seg-000000.safetensors").rename(p / "x"),
        (p / "seg-000001.safetensors").rename(p / "seg-000000.safetensors"),
        (p / "x").rename(p / "seg-000001.safetensors"),
    ),
    "altered spec": damage_spec,
    "missing spec": lambda p: (p / "spec.json").unlink(),
    "manifest without end": lambda p: (p / "manifest.jsonl").write_text(
        "\n".join((p / "manifest.jsonl").read_text().splitlines()[:-1])
    ),
    "manifest cut in a line": lambda p: os.truncate(p / "manifest.jsonl", 100),
    "manifest line lost": lambda p: (p / "manifest.jsonl").write_text(
        "\n".join((p / "manifest.jsonl").read_text().splitlines()[1:])
    ),
    "empty manifest": lambda p: (p / "manifest.jsonl").write_text(""),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_refused_never_half_read(tmp_path, kind):
    path = tmp_path / "t"
    write_qkv(path)
    DAMAGE[kind](path)
    with pytest.raises(CorruptTrace):
        trace = open_trace(path)
        for layer in (2, 5):
            trace.rows(layer, 0)
            trace.rows(layer, 1)
    with pytest.raises(CorruptTrace):
        validate(open_trace(path))


def rewrite(path, change):
    """Alter a trace and make its checksums agree again, as a faulty writer would."""
    change(path)
    entries, _ = parse_manifest((path / "manifest.jsonl").read_bytes())
    for entry in entries:
        file = path / entry["file"]
        entry |= {"sha256": sha256_of(file), "bytes": file.stat().st_size}
    end = end_line(entries, (path / "spec.json").read_text())
    (path / "manifest.jsonl").write_bytes(b"".join(map(to_line, [*entries, end])))


def edit_tensors(name, change):
    def apply(path):
        file = path / "seg-000000.safetensors"
        tensors = safetensors.numpy.load_file(file)
        tensors[name] = change(tensors[name])
        safetensors.numpy.save_file(tensors, file)

    return apply


def edit_spec(old, new):
    def apply(path):
        text = (path / "spec.json").read_text()
        assert old in text
        (path / "spec.json").write_text(text.replace(old, new))

    return apply


FAULTY = {
    "NaN": (
        edit_tensors("2.k", lambda k: np.where(np.arange(8) == 3, np.nan, k).astype("f4")),
        "NaN or infinity",
    ),
    "wrong shape": (edit_tensors("5.q", lambda q: q[:3].copy()), "not what the spec declares"),
    "lost tokens": (edit_tensors("5.k", lambda k: k[:, :-1].copy()), "not what the spec declares"),
    "wrong dtype": (edit_tensors("5.v", lambda v: v.astype("f8")), "not what the spec declares"),
    "future visible": (edit_tensors("2.hi", lambda hi: hi + 1), "interval is not causal"),
    "unknown schema": (edit_spec('"schema": 2', '"schema": 99'), "schema 99"),
    "unknown key": (edit_spec('"schema": 2', '"schema": 2, "extra": 2'), "Extra inputs are not permitted"),
    "odd heads": (edit_spec('"q_heads": 4', '"q_heads": 5'), "do not divide"),
}


@pytest.mark.parametrize("kind", FAULTY)
def test_validate_catches_what_checksums_cannot(tmp_path, kind):
    change, words = FAULTY[kind]
    write_qkv(tmp_path / "t", cuts=(0, TOKENS))
    rewrite(tmp_path / "t", change)
    with pytest.raises(CorruptTrace, match=words):
        validate(open_trace(tmp_path / "t"))


def test_any_flipped_bit_is_found(tmp_path):
    path, rng = tmp_path / "t", np.random.default_rng(6)
    write_qkv(path)
    for file in sorted(path.iterdir()):
        good = file.read_bytes()
        for place in range(0, len(good), 1 if file.name == "manifest.jsonl" else 37):
            damaged = bytearray(good)
            damaged[place] ^= 1 << int(rng.integers(8))
            file.write_bytes(damaged)
            with pytest.raises(CorruptTrace):
                open_trace(path).verify_segments()
        file.write_bytes(good)
    assert open_trace(path).verify_segments() == 2


def test_a_gap_is_an_error_not_zeros(tmp_path):
    with TraceWriter(tmp_path / "g") as writer:
        for start, stop in ((0, 4), (5, 8)):
            part = {
                "0.q": np.ones((1, stop - start, 2), "f4"),
                "0.k": np.ones((1, stop - start, 2), "f4"),
            }
            part |= {
                "0.lo": np.zeros(stop - start, "i4"),
                "0.hi": np.arange(start + 1, stop + 1, dtype="i4"),
            }
            writer.add_segment(part, start=start, stop=stop, layers=[0])
        writer.commit(TraceSpec(8, (LayerSpec(0, 1, 1, 2, 0, 1.0),)))
    with pytest.raises(CorruptTrace, match="gap"):
        open_trace(tmp_path / "g").rows(0, 0)


def test_nothing_is_left_of_an_abandoned_trace(tmp_path):
    with pytest.raises(RuntimeError), TraceWriter(tmp_path / "t") as writer:
        writer.add_segment({"0.q": np.ones((1, 1, 1), "f4")}, start=0, stop=1, layers=[0])
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_parents_made_for_a_trace_go_with_it_unless_used(tmp_path):
    with TraceWriter(tmp_path / "a" / "b" / "t"):
        assert (tmp_path / "a" / "b" / "t.unfinished").is_dir()
    assert list(tmp_path.iterdir()) == []
    with TraceWriter(tmp_path / "a" / "b" / "t"):
        (tmp_path / "a" / "mine").write_text("kept")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["mine"]


def test_existing_output_is_kept(tmp_path):
    write_qkv(tmp_path / "t")
    before = open_trace(tmp_path / "t").trace_id
    with pytest.raises(OutputExists):
        TraceWriter(tmp_path / "t")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "notes.txt").write_text("mine")
    with pytest.raises(OutputExists, match="not a trace"):
        TraceWriter(tmp_path / "precious", overwrite=True)
    Trace.from_attention(attention()).save(tmp_path / "t", overwrite=True)
    assert open_trace(tmp_path / "t").trace_id != before
    assert (tmp_path / "precious" / "notes.txt").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious", "t"]


def test_unwritable_place(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="writable"):
        TraceWriter(tmp_path / "file" / "trace")
