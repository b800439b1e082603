"""A forged trace whose checksums are right: whatever is in it, it is refused by name or read."""

import hashlib
import json
import os
import random
import shutil

import numpy as np
import pytest

from h2o_theory.errors import BadArgument, CannotRead, CorruptTrace, H2OTheoryError
from h2o_theory.recorder.reading import read_text
from h2o_theory.trace import LayerSpec, TraceSpec, TraceWriter, open_trace, segments, validate
from h2o_theory.trace.manifest import end_line, to_line

TOKENS = 5


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A trace of two layers and two segments of each."""
    rng = np.random.default_rng(0)
    spec = TraceSpec(
        TOKENS, tuple(LayerSpec(n, 2, 1, 4, 4, 0.5) for n in (0, 3)), dtype="float64",
        token_ids=tuple(range(TOKENS)), model={"id": "made up", "rope": {"rope_theta": 1e4}},
    )  # fmt: skip
    out = tmp_path_factory.mktemp("whole") / "t"
    with TraceWriter(out) as writer:
        for start, stop in ((0, 3), (3, TOKENS)):
            part = {}
            for layer in (0, 3):
                for kind, heads in (("q", 2), ("k", 1), ("v", 1)):
                    part[f"{layer}.{kind}"] = rng.normal(size=(heads, stop - start, 4))
                part[f"{layer}.lo"] = np.zeros(stop - start, "i4")
                part[f"{layer}.hi"] = np.arange(start + 1, stop + 1, dtype="i4")
            writer.add_segment(part, start=start, stop=stop, layers=[0, 3])
        writer.commit(spec)
    return out


def sealed(folder, spec_text, entries):
    """Write spec and manifest with the checksums that belong to what is there."""
    for entry in entries:
        if isinstance(entry, dict) and (folder / str(entry.get("file"))).is_file():
            data = (folder / entry["file"]).read_bytes()
            entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / "spec.json").write_text(spec_text)
    lines = [*entries, end_line(entries, spec_text)]
    (folder / "manifest.jsonl").write_bytes(b"".join(map(to_line, lines)))


def parts(folder):
    lines = (folder / "manifest.jsonl").read_text().splitlines()
    return json.loads((folder / "spec.json").read_text()), [json.loads(x) for x in lines[:-1]]


def require_refused_or_read(folder):
    """Opening and validating ends in one named error, or in a trace that can be read."""
    try:
        trace = open_trace(folder)
        validate(trace)
        trace.info()
    except H2OTheoryError:
        return False
    return True


FORGED = {
    "scaling": [1e300, 0, -1, "1", True, None],
    "sliding_window": [-3, 0, 1.5],
    "softcap": [0, -2.0, 1e300],
    "head_dim": [0, -4, 4.0, 5],
    "q_heads": [0, 3, 2.0, 10**30],
    "kv_heads": [0, 3, True],
    "layer": [-1, 0.0, 3, "0"],
    "sinks": [[], [1.0], ["a", "b"], [1e300, 0]],
    "kv_head_ids": [[1, 2], [-1], ["0"]],
}


@pytest.mark.parametrize("name, value", [(n, v) for n, vs in FORGED.items() for v in vs])
def test_a_forged_layer_is_refused(whole, tmp_path, name, value):
    folder = shutil.copytree(whole, tmp_path / "t")
    spec, entries = parts(folder)
    spec["layers"][0][name] = value
    sealed(folder, json.dumps(spec), entries)
    with pytest.raises(CorruptTrace):
        validate(open_trace(folder))


@pytest.mark.parametrize(
    "name, value",
    [
        ("dtype", "float13"),
        ("dtype", "float32"),
        ("content", "attention"),
        ("tokens", 5.0),
        ("tokens", 0),
        ("token_ids", [1, 2]),
        ("token_ids", [1.0] * TOKENS),
        ("token_strings", ["a" * 5000] * TOKENS),
        ("prompt_length", -1),
        ("model", {"id": "x" * 10_000}),
        ("model", []),
        ("text", json.loads("[" * 300 + "]" * 300)),
        ("versions", {"a": {"b": {"c": {"d": {"e": 1}}}}}),
        ("layers", []),
        ("unheard", 1),
    ],
)
def test_a_forged_spec_is_refused(whole, tmp_path, name, value):
    folder = shutil.copytree(whole, tmp_path / "t")
    spec, entries = parts(folder)
    spec[name] = value
    sealed(folder, json.dumps(spec), entries)
    with pytest.raises(CorruptTrace):
        validate(open_trace(folder))


@pytest.mark.parametrize("text", ["", "3", "[]", '"spec"', "[" * 100_000, "NaN", '{"schema": 2}'])
def test_a_spec_that_is_none_is_refused(whole, tmp_path, text):
    folder = shutil.copytree(whole, tmp_path / "t")
    sealed(folder, text, parts(folder)[1])
    with pytest.raises(CorruptTrace):
        open_trace(folder)


VALUES = [None, True, -1, 0, 1, 2.5, 10**30, 1e300, "", "0", [], {}, [[]], "x" * 5000, float("nan")]


def mutated(value, rng):
    """A JSON value with one of its leaves or branches replaced, dropped or doubled."""
    if isinstance(value, dict | list) and value and rng.random() < 0.85:
        value = dict(value) if isinstance(value, dict) else list(value)
        place = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
        act = rng.random()
        if act < 0.1:
            del value[place]
        elif act < 0.2 and isinstance(value, list):
            value.append(value[place])
        else:
            value[place] = mutated(value[place], rng)
        return value
    return rng.choice(VALUES)


@pytest.mark.parametrize("kind", ["spec", "manifest", "header", "numbers"])
def test_a_thousand_mutations_by_class(whole, tmp_path, kind):
    """250 of each kind of file; sealed again, so that no checksum gives them away."""
    rng = random.Random(kind)
    spec, entries = parts(whole)
    folder = shutil.copytree(whole, tmp_path / "t")
    files = {entry["file"]: (whole / entry["file"]).read_bytes() for entry in entries}
    read = 0
    for _ in range(250):
        new_spec, new_entries = spec, [dict(entry) for entry in entries]
        for name, data in files.items():
            (folder / name).write_bytes(data)
        target = rng.choice(sorted(files))
        data, size = bytearray(files[target]), int.from_bytes(files[target][:8], "little")
        if kind == "spec":
            new_spec = mutated(spec, rng)
        elif kind == "manifest":
            new_entries = mutated(new_entries, rng)
        elif kind == "header":
            header = json.dumps(mutated(json.loads(data[8 : 8 + size]), rng)).encode()
            data = len(header).to_bytes(8, "little") + header + data[8 + size :]
        else:
            data[rng.randrange(8 + size, len(data))] ^= 1 << rng.randrange(8)
        if kind in ("header", "numbers"):
            (folder / target).write_bytes(data)
        new_entries = new_entries if isinstance(new_entries, list) else [new_entries]
        sealed(folder, json.dumps(new_spec), new_entries)
        read += require_refused_or_read(folder)
    assert read < 250 and (kind != "numbers" or read > 0)


@pytest.mark.parametrize("name", ["spec.json", "manifest.jsonl"])
@pytest.mark.parametrize("status", ["complete", "unfinished"])
def test_a_pipe_or_a_device_is_never_read(whole, tmp_path, name, status):
    out = tmp_path / "t"
    folder = shutil.copytree(whole, out if status == "complete" else tmp_path / "t.unfinished")
    for make in (os.mkfifo, lambda path: os.symlink("/dev/zero", path)):
        (folder / name).unlink()
        make(folder / name)
        with pytest.raises(H2OTheoryError):
            open_trace(out)
    for path in (tmp_path / "pipe", "/dev/zero"):
        if not os.path.exists(path):
            os.mkfifo(path)
        with pytest.raises(BadArgument, match="regular file"):
            read_text(path)


def test_trouble_of_the_machine_is_no_fault_of_the_trace(whole, monkeypatch):
    def no_memory(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr(segments.np, "memmap", no_memory)
        with pytest.raises(CannotRead, match="Cannot allocate memory"):
            open_trace(whole).rows(0, 0)
    for layer in (0.0, "0", None):
        with pytest.raises(BadArgument, match="whole number"):
            open_trace(whole).rows(layer, 0)
    assert open_trace(whole).rows(np.int64(0), 0).shape == (2, TOKENS, TOKENS)
