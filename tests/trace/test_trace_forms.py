"""Every form in which a trace stores attention: its size, and damage that validation must find."""

import hashlib
import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
import reference

from h2o_theory.cli import main
from h2o_theory.errors import BadArgument, CannotWrite
from h2o_theory.trace import (
    LayerSpec,
    Trace,
    TraceSpec,
    TraceWriter,
    header_allowance,
    open_trace,
    packed_bytes,
    predict_bytes,
    require_room,
    validate,
)
from h2o_theory.trace.manifest import end_line, parse_manifest, to_line
from h2o_theory.trace.rows import pack_rows

TOKENS, CUTS, LAYERS = 23, (0, 9, 23), (2, 5)


def in_dtype(array, dtype):
    """Storage form of an array: itself, or the raw bits of bfloat16."""
    if dtype != "bfloat16":
        return array.astype(dtype)
    return (array.astype("f4").view(np.uint32) >> 16).astype(np.uint16)


def write_form(path, content, dtype, *, value_dim=6, sinks=None, kv_head_ids=None):
    """Two layers of 4 query heads on 2 kv_heads, a segment for each layer and token range."""
    rng, tensors = np.random.default_rng(0), {}
    head_dim = 8 if content == "qkv" else 0
    for layer in LAYERS:
        if value_dim:
            tensors[f"{layer}.v"] = rng.normal(size=(2, TOKENS, value_dim))
        if content == "qkv":
            tensors[f"{layer}.q"] = rng.normal(size=(4, TOKENS, 8))
            tensors[f"{layer}.k"] = rng.normal(size=(2, TOKENS, 8))
        else:
            share = 1 if sinks is None else 0.75
            tensors[f"{layer}.p"] = share * reference.softmax_rows(rng, 4, TOKENS)
    specs = [
        LayerSpec(layer, 4, 2, head_dim, value_dim, 0.5, sinks=sinks, kv_head_ids=kv_head_ids)
        for layer in LAYERS
    ]
    spec = TraceSpec(TOKENS, tuple(specs), content, dtype, token_ids=tuple(range(TOKENS)))
    with TraceWriter(path, plan=spec) as writer:
        for layer in LAYERS:
            for start, stop in zip(CUTS, CUTS[1:], strict=False):
                part, dtypes = {}, {}
                for kind in "qkvp":
                    name = f"{layer}.{kind}"
                    if name in tensors:
                        rows = tensors[name][:, start:stop]
                        rows = pack_rows(rows, start) if kind == "p" else rows
                        part[name], dtypes[name] = in_dtype(rows, dtype), dtype
                if content == "qkv":
                    part[f"{layer}.lo"] = np.zeros(stop - start, "i4")
                    part[f"{layer}.hi"] = np.arange(start + 1, stop + 1, dtype="i4")
                writer.add_segment(part, start=start, stop=stop, layers=[layer], dtypes=dtypes)
        writer.commit(spec)
    return path


FORMS = {
    "qkv float32": ("qkv", "float32", {}),
    "qkv float16": ("qkv", "float16", {}),
    "qkv bfloat16": ("qkv", "bfloat16", {}),
    "qk": ("qkv", "float32", {"value_dim": 0}),
    "qkv sinks": ("qkv", "float32", {"sinks": (0.1, -0.2, 3.0, 0.0)}),
    "some heads": ("qkv", "float32", {"kv_head_ids": (1, 6)}),
    "rows float64": ("attention", "float64", {"value_dim": 0}),
    "rows float32 and v": ("attention", "float32", {}),
    "rows float16": ("attention", "float16", {"value_dim": 0}),
    "rows bfloat16 and v": ("attention", "bfloat16", {}),
    "rows sinks": ("attention", "float16", {"value_dim": 0, "sinks": ()}),
}


@pytest.fixture(scope="module", params=FORMS)
def form(request, tmp_path_factory):
    content, dtype, options = FORMS[request.param]
    return write_form(tmp_path_factory.mktemp("form") / "t", content, dtype, **options)


def test_a_whole_trace_is_valid_and_copies_faithfully(form, tmp_path, capsys):
    assert main(["validate", str(form)]) == 0
    assert "valid: 4 segments, 4 kv_heads, 184 rows" in capsys.readouterr().out
    assert main(["validate", str(form), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["valid"] and (found["segments"], found["kv_heads"], found["rows"]) == (4, 4, 184)
    trace = open_trace(form)
    copy = open_trace(trace.save(tmp_path / "copy"))
    assert validate(copy).segments == 2 and copy.spec == trace.spec
    for layer in LAYERS:
        for kv_head in trace.kv_heads(layer):
            assert np.array_equal(copy.rows(layer, kv_head), trace.rows(layer, kv_head))
            if trace.spec.layers[0].value_dim:
                assert np.array_equal(copy.values(layer, kv_head), trace.values(layer, kv_head))


def test_no_rows_are_an_empty_block(form):
    trace = open_trace(form)
    kv_head = trace.kv_heads(2)[-1]
    for start in (0, 9, 20, TOKENS):
        assert trace.rows(2, kv_head, start, start).shape == (2, 0, TOKENS)
    if trace.has_values(2):
        assert trace.values(2, kv_head, 15, 15).shape == (0, 6)
    if trace.spec.content == "qkv":
        assert trace.queries(2, kv_head, 0, 0).shape == (2, 0, 8)


def test_the_size_is_predicted_exactly(form):
    spec = open_trace(form).spec
    tensors = sum(
        np.prod(shape) * {"int32": 4, "float32": 4, "float64": 8}.get(dtype, 2)
        for part in open_trace(form).parts()
        for shape, dtype in part[4].values()
    )
    assert predict_bytes(spec) == tensors
    on_disk = sum(file.stat().st_size for file in form.iterdir())
    assert tensors < on_disk <= tensors + header_allowance(spec)


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)


def reseal(folder, change):
    """Edit the entries of the manifest and seal it again, as a faulty writer would."""
    path = folder / "manifest.jsonl"
    entries, _ = parse_manifest(path.read_bytes())
    change(entries)
    end = end_line(entries, (folder / "spec.json").read_text())
    path.write_bytes(b"".join(map(to_line, [*entries, end])))


def swap_files(folder):
    first, second = folder / "seg-000000.safetensors", folder / "seg-000002.safetensors"
    first.rename(folder / "x")
    second.rename(first)
    (folder / "x").rename(second)


def swap_layers(entries):
    """Layer 2 and layer 5 exchanged in the manifest."""
    for entry in entries:
        entry["layers"] = [7 - layer for layer in entry["layers"]]


def swap_ranges(entries):
    first, second = entries[:2]
    for key in ("start", "stop"):
        first[key], second[key] = second[key], first[key]


def swap_names(folder):
    """The tensors of a file called by another layer's name, and everything sealed again."""
    path = folder / "seg-000000.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"2.', b'"5.'))
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    reseal(folder, lambda entries: entries[0].update(sha256=found))


SEGMENT = "seg-000001.safetensors"
DAMAGE = {
    "flipped byte of a tensor": lambda f: flip(f / SEGMENT, -3),
    "flipped byte of a header": lambda f: flip(f / SEGMENT, 30),
    "flipped byte of the spec": lambda f: flip(f / "spec.json", 40),
    "flipped byte of the manifest": lambda f: flip(f / "manifest.jsonl", 20),
    "missing segment": lambda f: (f / SEGMENT).unlink(),
    "missing segment, sealed": lambda f: reseal(f, lambda entries: entries.pop(1)),
    "missing layer, sealed": lambda f: reseal(f, lambda entries: entries.__delitem__(slice(2))),
    "swapped layers, files": swap_files,
    "swapped layers, manifest": lambda f: reseal(f, swap_layers),
    "swapped layers, names": swap_names,
    "swapped ranges": lambda f: reseal(f, swap_ranges),
    "truncated segment": lambda f: os.truncate(f / SEGMENT, (f / SEGMENT).stat().st_size - 8),
    "empty segment": lambda f: os.truncate(f / SEGMENT, 0),
    "truncated spec": lambda f: os.truncate(f / "spec.json", 100),
    "truncated manifest": lambda f: os.truncate(f / "manifest.jsonl", 300),
    "a line of the manifest altered": lambda f: (f / "manifest.jsonl").write_text(
        (f / "manifest.jsonl").read_text().replace('"start": 9', '"start": 8', 1)
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_validate_refuses_damage(form, tmp_path, capsys, damage):
    shutil.copytree(form, tmp_path / "t")
    DAMAGE[damage](tmp_path / "t")
    assert main(["validate", str(tmp_path / "t")]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "Traceback" not in captured.err
    line = captured.err.strip().splitlines()[-1]
    assert line.startswith("h2o-theory: CorruptTrace: ") and "t" in line


INCONSISTENT = {
    "fewer ids": ("token_ids", list(range(TOKENS - 1)), "token_ids do not fit"),
    "long prompt": ("prompt_length", TOKENS + 1, "prompt is longer"),
    "another dtype": ("dtype", "float64", "not what the spec declares"),
    "another length": ("tokens", TOKENS + 1, "ends early or late"),
}


@pytest.mark.parametrize("case", INCONSISTENT)
def test_validate_refuses_a_spec_that_does_not_fit(tmp_path, capsys, case):
    key, value, words = INCONSISTENT[case]
    folder = write_form(tmp_path / "t", "qkv", "float32")
    spec = json.loads((folder / "spec.json").read_text())
    (folder / "spec.json").write_text(json.dumps(spec | {key: value}))
    reseal(folder, lambda entries: None)
    assert main(["validate", str(folder)]) == 2
    assert words in capsys.readouterr().err


def test_a_trace_in_memory_is_validated_too():
    rows = np.stack([reference.softmax_rows(np.random.default_rng(1), 4, TOKENS)] * 2)
    report = validate(Trace.from_attention(rows, kv_heads=2))
    assert (report.segments, report.kv_heads, report.rows) == (0, 4, 8 * TOKENS)


def test_info_compares_the_size_with_packed_attention(form):
    trace = open_trace(form)
    info, spec = trace.info(), trace.spec
    assert info["bytes_per_token"] == round(predict_bytes(spec) / TOKENS, 1)
    item = {"float64": 8, "float32": 4}.get(spec.dtype, 2)
    assert packed_bytes(spec) == 2 * 4 * TOKENS * (TOKENS + 1) // 2 * item
    assert info["share_of_packed"] == round(predict_bytes(spec) / packed_bytes(spec), 4)
    assert info["sinks"] == ("none" if spec.layers[0].sinks is None else "yes")
    assert info["kv_heads"] == ("2 (1, 6)" if spec.layers[0].kv_head_ids == (1, 6) else 2)


@pytest.mark.parametrize(
    "prompt, generation, said",
    [(5, {}, "none"), (3, {}, "not stated"), (3, {"method": "greedy"}, "greedy")],
)
def test_info_says_how_tokens_were_generated(prompt, generation, said):
    spec = TraceSpec(5, (LayerSpec(0, 4, 2, 8, 8, 1.0),), generation=generation)
    trace = Trace(replace(spec, prompt_length=prompt), None, "t")
    trace._store = type("Store", (), {"content_hash": lambda self: "0" * 64})()
    assert trace.info()["generation"] == said


def test_info_says_which_layers_differ():
    first = LayerSpec(0, 4, 2, 8, 8, 1.0)
    others = [LayerSpec(layer, 8, 2, 8, 8, 1.0, sliding_window=16) for layer in (1, 2, 4)]
    trace = Trace(TraceSpec(5, (first, *others)), None, "t")
    trace._store = type("Store", (), {"content_hash": lambda self: "0" * 64})()
    assert trace.info()["q_heads"] == "4 in 0; 8 in 1-2, 4"
    assert trace.info()["sliding_window"] == "none in 0; 16 in 1-2, 4"


def plan(tokens=TOKENS):
    return TraceSpec(tokens, (LayerSpec(0, 4, 2, 8, 8, 1.0),))


def test_a_recording_that_does_not_fit_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    needed = predict_bytes(plan()) + header_allowance(plan())
    usage = type("Usage", (), {"free": (64 << 20) + needed - 1})
    monkeypatch.setattr("shutil.disk_usage", lambda place: usage)
    with pytest.raises(CannotWrite, match="does not fit on the disk"):
        TraceWriter(tmp_path / "new" / "t", plan=plan())
    assert list(tmp_path.iterdir()) == []
    require_room(tmp_path / "t", plan(), present=1)
    with pytest.raises(CannotWrite):
        require_room(tmp_path / "t", [plan(), plan()], present=1)
    usage.free += 1
    with TraceWriter(tmp_path / "new" / "t", plan=plan()):
        assert (tmp_path / "new" / "t.unfinished").is_dir()
    assert list(tmp_path.iterdir()) == []


def test_a_size_without_a_length_cannot_be_predicted():
    for spec in (plan(None), TraceSpec(3, (), dtype="int8")):
        with pytest.raises(BadArgument, match="spec must state a length"):
            predict_bytes(spec)
