"""Import of attention matrices: every form that is accepted, and a name for every refusal."""

import json
import tracemalloc

import numpy as np
import pytest
import reference
import safetensors.numpy

from h2o_theory.cli import main
from h2o_theory.errors import BadArgument, InvalidAttention, OutputExists, TraceNotFound
from h2o_theory.report import load_results
from h2o_theory.trace import Trace, import_attention, open_trace, predict_bytes, validate
from h2o_theory.trace.segments import segment_bytes

LAYERS, HEADS, TOKENS = 3, 4, 21


def matrices(layers=LAYERS, dtype="f4", tokens=TOKENS, heads=HEADS):
    rng = np.random.default_rng(0)
    rows = [reference.softmax_rows(rng, heads, tokens) for _ in range(layers)]
    return np.stack(rows).astype(dtype)


def per_layer(name, array):
    return {name.format(i): part for i, part in enumerate(array)}


def save_folder(path, array):
    path.mkdir()
    for name, part in per_layer("layer_{}", array).items():
        np.save(path / f"{name}.npy", part)


def save_safetensors(path, tensors):
    safetensors.numpy.save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, path)


FORMS = {
    "stack.npy": lambda path, a: np.save(path, a),
    "fortran.npy": lambda path, a: np.save(path, np.asfortranarray(a)),
    "swapped.npy": lambda path, a: np.save(path, a.astype(a.dtype.newbyteorder())),
    "batch.npy": lambda path, a: np.save(path, a[:, None]),
    "stack.npz": lambda path, a: np.savez(path, attention=a),
    "positional.npz": lambda path, a: np.savez(path, a),
    "small.npz": lambda path, a: np.savez_compressed(path, a[:, None]),
    "tuple.npz": lambda path, a: np.savez(path, *a[:, None]),
    "named.npz": lambda path, a: np.savez_compressed(path, **per_layer("layer_{}", a)),
    "stack.safetensors": lambda path, a: save_safetensors(path, {"attention": a}),
    "tuple.safetensors": lambda path, a: save_safetensors(
        path, per_layer("attentions.{}", a[:, None])
    ),
    "number.safetensors": lambda path, a: save_safetensors(
        path, per_layer("{}", a) | {"input_ids": np.arange(TOKENS, dtype="i4")}
    ),
    "folder": save_folder,
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_stored_bit_for_bit_and_read_as_rows(tmp_path, form, dtype):
    array = matrices(dtype=dtype)
    FORMS[form](tmp_path / form, array)
    report = import_attention(tmp_path / form, tmp_path / "t", kv_heads=2)
    trace = open_trace(tmp_path / "t")
    assert trace.layers == (0, 1, 2) and trace.spec.dtype == report.dtype == dtype
    assert report.worst_row_sum_error == validate(trace).worst_row_sum_error
    assert report.ignored == (("input_ids",) if form == "number.safetensors" else ())
    for layer in trace.layers:
        for kv_head in (0, 1):
            rows = array[layer, 2 * kv_head : 2 * kv_head + 2].astype("f8")
            assert np.array_equal(trace.stored_rows(layer, kv_head), rows)
            assert np.array_equal(trace.rows(layer, kv_head), rows / rows.sum(-1, keepdims=True))
    again = Trace.from_attention(array, kv_heads=2)
    assert np.array_equal(again.rows(1, 1, 3, 9), trace.rows(1, 1, 3, 9))


def test_bfloat16_from_safetensors(tmp_path):
    bits = (matrices().view(np.uint32) >> 16).astype(np.uint16)
    data = segment_bytes({"attention": bits}, {"attention": "bfloat16"})
    (tmp_path / "a.safetensors").write_bytes(data)
    report = import_attention(tmp_path / "a.safetensors", tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    kept = (bits[2, 3].astype(np.uint32) << 16).view("f4")
    assert np.array_equal(trace.stored_rows(2, 3)[0], kept)
    assert trace.spec.dtype == "bfloat16" and 1e-3 < report.worst_row_sum_error < 2e-2
    assert "kept as they are, rescaled" in str(report) and "accepted: 0.02" in str(report)
    assert np.abs(trace.rows(0, 0).sum(axis=-1) - 1).max() < 1e-12


def test_layers_are_ordered_by_number_not_by_name(tmp_path):
    array = matrices(layers=12, tokens=5)
    shuffled = {f"layer_{i + 7}": array[i] for i in (11, 2, 0, 1, 10, 3, 9, 4, 8, 5, 7, 6)}
    np.savez(tmp_path / "a.npz", **shuffled)
    import_attention(tmp_path / "a.npz", tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    assert trace.layers == tuple(range(7, 19))
    assert np.array_equal(trace.stored_rows(17, 0)[0], array[10, 0])


def test_each_sequence_becomes_a_trace(tmp_path):
    array = np.stack([matrices(tokens=9), matrices(tokens=9)[::-1]], axis=1)
    np.save(tmp_path / "a.npy", array)
    tokens = [list(range(9)), list(range(9, 18))]
    report = import_attention(tmp_path / "a.npy", tmp_path / "out", tokens=tokens)
    assert [path.name for path in report.paths] == ["000000", "000001"]
    for b, path in enumerate(report.paths):
        trace = open_trace(path)
        assert np.array_equal(trace.stored_rows(0, 1)[0], array[0, b, 1])
        assert trace.spec.token_ids == tuple(tokens[b]) and trace.spec.text["sequence"] == b
    with pytest.raises(TraceNotFound, match="2 traces in it.*000000, 000001"):
        open_trace(tmp_path / "out")


def test_grouping_by_layer(tmp_path):
    save_safetensors(
        tmp_path / "a.safetensors",
        {"l0": matrices(heads=4)[0], "l1": matrices(heads=6)[1]},
    )
    import_attention(tmp_path / "a.safetensors", tmp_path / "t", kv_heads=[4, 2])
    import_attention(tmp_path / "a.safetensors", tmp_path / "u", group=[1, 3])
    for name in "tu":
        trace = open_trace(tmp_path / name)
        assert [trace.layer(layer).group for layer in (0, 1)] == [1, 3]
        assert [trace.kv_heads(layer) for layer in (0, 1)] == [(0, 1, 2, 3), (0, 1)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kv_heads": 3}, "must divide"),
        ({"kv_heads": [2, 2]}, "kv_heads must be one number, or one for each"),
        ({"kv_heads": 0}, "must divide"),
        ({"kv_heads": "22"}, "kv_heads must be a whole number"),
        ({"kv_heads": 2.0}, "a whole number"),
        ({"group": [1, "2"]}, "group must be a whole number"),
        ({"group": 3}, "group must divide"),
        ({"group": [1, 2]}, "group must be one number.*got 2 numbers"),
        ({"group": [1, 2, 3]}, "group must divide"),
        ({"group": 2, "kv_heads": 2}, "give one of them"),
        ({"tokens": [1, 2]}, "tokens must be"),
        ({"tokens": [1.5] * TOKENS}, "tokens must be"),
        ({"tokens": "word"}, "tokens must be"),
        ({"tokens": 3}, "tokens must be"),
    ],
)
def test_options_that_do_not_fit(tmp_path, options, words):
    np.save(tmp_path / "a.npy", matrices())
    with pytest.raises(BadArgument, match=words):
        import_attention(tmp_path / "a.npy", tmp_path / "t", **options)
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy"]


def test_token_strings(tmp_path):
    np.save(tmp_path / "a.npy", matrices())
    words = [f"w{i}" for i in range(TOKENS)]
    import_attention(tmp_path / "a.npy", tmp_path / "t", tokens=words)
    spec = open_trace(tmp_path / "t").spec
    assert spec.token_strings == tuple(words) and spec.token_ids is None


def test_numbers_from_arrays(tmp_path):
    np.save(tmp_path / "a.npy", matrices())
    import_attention(
        tmp_path / "a.npy", tmp_path / "t", tokens=np.arange(TOKENS), kv_heads=np.int64(2)
    )
    trace = open_trace(tmp_path / "t")
    assert trace.spec.token_ids == tuple(range(TOKENS)) and trace.kv_heads(0) == (0, 1)


def test_attention_sinks_leave_rows_below_one(tmp_path):
    array = matrices() * np.linspace(0.1, 1, TOKENS)[:, None].astype("f4")
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(InvalidAttention, match="does not sum to one"):
        import_attention(tmp_path / "a.npy", tmp_path / "t")
    report = import_attention(tmp_path / "a.npy", tmp_path / "t", sinks=True)
    trace = open_trace(tmp_path / "t")
    assert np.array_equal(trace.rows(1, 2)[0], array[1, 2].astype("f8"))
    assert trace.layer(0).sinks == () and "rescaled" not in str(report)
    assert validate(trace).rows == LAYERS * HEADS * TOKENS
    np.save(tmp_path / "b.npy", 1.1 * matrices())
    with pytest.raises(InvalidAttention, match="layer 0, head 0, row 0: .*more than one"):
        import_attention(tmp_path / "b.npy", tmp_path / "u", sinks=True)


FAULTS = {
    "NaN": (lambda a: a.__setitem__((2, 1, 4, 2), np.nan), "layer 2, head 1, row 4, key 2.*NaN"),
    "negative": (
        lambda a: a.__setitem__((0, 2, 6, 1), -0.25),
        "layer 0, head 2, row 6.*negative",
    ),
    "future": (lambda a: a.__setitem__((1, 3, 6, 7), 0.25), "layer 1, head 3, row 6.*future"),
    "sum": (lambda a: a[1, 0, 9].__imul__(1.03), "layer 1, head 0, row 9.*sum to one"),
}


@pytest.mark.parametrize("dtype", ["f4", "f2"])
@pytest.mark.parametrize("fault", FAULTS)
def test_bad_rows_are_refused_and_nothing_is_left(tmp_path, fault, dtype):
    array = matrices(dtype=dtype)
    spoil, words = FAULTS[fault]
    spoil(array)
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(InvalidAttention, match=words):
        import_attention(tmp_path / "a.npy", tmp_path / "new" / "deep" / "t")
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy"]


def test_a_fault_past_the_first_block_is_placed_right(tmp_path, monkeypatch):
    monkeypatch.setattr("h2o_theory.trace.foreign.BLOCK_BYTES", 1)
    array = matrices()
    np.save(tmp_path / "a.npy", array)
    import_attention(tmp_path / "a.npy", tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    assert validate(trace).segments == LAYERS * TOKENS
    assert np.array_equal(trace.stored_rows(1, 1, 4, 17)[0], array[1, 1, 4:17])
    array[2, 3, 17, 5] = np.inf
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(InvalidAttention, match="layer 2, head 3, row 17, key 5"):
        import_attention(tmp_path / "a.npy", tmp_path / "u")


def cut(path):
    path.write_bytes(path.read_bytes()[:-200])


def save_objects(path):
    array = np.empty(2, dtype=object)
    array[:] = [matrices(), "code"]
    (np.save if path.suffix == ".npy" else np.savez)(path, array)


def save_two_kinds(path):
    np.savez(path, **per_layer("encoder.{}", matrices()), **per_layer("decoder.{}", matrices()))


SOURCES = {
    "absent.npy": (lambda p: None, "No such file"),
    "absent": (lambda p: None, "format is not known"),
    "cut.npy": (lambda p: (np.save(p, matrices()), cut(p)), "cannot be read"),
    "cut.npz": (lambda p: (np.savez(p, matrices()), cut(p)), "cannot be read"),
    "cut.safetensors": (lambda p: (save_safetensors(p, {"a": matrices()}), cut(p)), "does not fit"),
    "text.npy": (lambda p: p.write_text("no array"), "cannot be read"),
    "text.npz": (lambda p: p.write_text("no archive"), "cannot be read"),
    "text.safetensors": (lambda p: p.write_text("no tensors"), "cannot be read"),
    "objects.npy": (save_objects, "Python objects"),
    "objects.npz": (save_objects, "pickled Python objects"),
    "fortran.npz": (lambda p: np.savez(p, np.asfortranarray(matrices())), "ascontiguousarray"),
    "model.pt": (lambda p: p.write_bytes(b"\x80"), "any code.*torch.load..model.pt"),
    "table.csv": (lambda p: p.write_text("1,2"), "format is not known.*csv"),
    "empty": (lambda p: p.mkdir(), "no .npy file"),
    "integers.npy": (lambda p: np.save(p, np.ones((1, 1, 1, 1), int)), "wrong dtype.*int64"),
    "flat.npy": (lambda p: np.save(p, np.eye(3)), "wrong shape.*3, 3"),
    "oblong.npy": (lambda p: np.save(p, np.ones((1, 2, 3, 4))), "wrong shape"),
    "six.npy": (lambda p: np.save(p, np.ones((1,) * 6)), "wrong shape"),
    "no_rows.npy": (lambda p: np.save(p, np.ones((1, 1, 0, 0))), "wrong shape"),
    "generated.npz": (
        lambda p: np.savez(p, np.ones((1, 2, 4, 4)), np.ones((1, 2, 1, 5))[..., :1]),
        "wrong shape",
    ),
    "steps.npz": (
        lambda p: np.savez(p, *(np.ones((1, 2, 1, t)) for t in (4, 5))),
        "wrong shape.*one row per step",
    ),
    "two.npz": (save_two_kinds, "names do not say"),
    "same.npz": (lambda p: np.savez(p, l1=matrices()[0], l01=matrices()[1]), "same layer"),
    "mixed.npz": (lambda p: np.savez(p, l0=matrices()[0], l1=matrices(dtype="f2")[1]), "dtype"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_that_cannot_be_used_is_named(tmp_path, name):
    make, words = SOURCES[name]
    make(tmp_path / name)
    with pytest.raises(InvalidAttention, match=words):
        import_attention(tmp_path / name, tmp_path / "out" / "t")
    assert not (tmp_path / "out").exists()


def test_an_existing_trace_is_kept_unless_told_otherwise(tmp_path):
    np.save(tmp_path / "a.npy", matrices())
    import_attention(tmp_path / "a.npy", tmp_path / "t")
    with pytest.raises(OutputExists):
        import_attention(tmp_path / "a.npy", tmp_path / "t", kv_heads=1)
    import_attention(tmp_path / "a.npy", tmp_path / "t", kv_heads=1, overwrite=True)
    assert open_trace(tmp_path / "t").kv_heads(0) == (0,)
    before = sorted(path.name for path in (tmp_path / "t").iterdir())
    for place in ("t/b", "t/deep/b"):
        with pytest.raises(OutputExists, match="inside a trace"):
            import_attention(tmp_path / "a.npy", tmp_path / place)
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == before


@pytest.mark.parametrize("form", ["stack.npy", "small.npz", "tuple.safetensors"])
def test_one_layer_at_a_time_is_in_memory(tmp_path, form):
    array = np.repeat(matrices(layers=1, tokens=192), 16, axis=0)
    FORMS[form](tmp_path / form, array)
    tracemalloc.start()
    import_attention(tmp_path / form, tmp_path / "t")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < array.nbytes / 2


def test_the_command_line_from_import_to_report(tmp_path, capsys):
    source, out = tmp_path / "a.npz", tmp_path / "t"
    np.savez_compressed(source, *matrices(dtype="f2")[:, None])
    (tmp_path / "ids.json").write_text(json.dumps(list(range(TOKENS))))
    command = ["import", str(source), "--out", str(out), "--kv-heads", "2", "--name", "mine"]
    assert main([*command, "--tokens", str(tmp_path / "ids.json")]) == 0
    captured = capsys.readouterr()
    assert captured.out.strip() == str(out)
    assert "float16" in captured.err and "accepted: 0.005" in captured.err
    trace = open_trace(out)
    assert trace.spec.model["id"] == "mine" and trace.spec.token_ids == tuple(range(TOKENS))
    assert main(["validate", str(out)]) == 0 and main(["info", str(out)]) == 0
    assert "attention" in capsys.readouterr().out
    results = tmp_path / "results.parquet"
    command = ["replay", str(out), "--policy", "h2o,optimum", "--budget", "4,8"]
    assert main([*command, "--out", str(results)]) == 0
    assert "holds no values" in capsys.readouterr().err
    table = load_results(results)
    assert len(table) == LAYERS * 2 * 4 and table.output_error.isna().all()
    assert (table[table.policy == "optimum"].approximation_ratio == 1).all()
    assert main(["report", str(results), "--out", str(tmp_path / "report")]) == 0
    assert "holds no values" in (tmp_path / "report" / "index.html").read_text()


def test_a_pickle_is_refused_on_the_command_line_with_the_way_out(tmp_path, capsys):
    (tmp_path / "a.pt").write_bytes(b"\x80")
    assert main(["import", str(tmp_path / "a.pt"), "--out", str(tmp_path / "t")]) == 2
    line = capsys.readouterr().err.strip()
    assert "InvalidAttention" in line and "save_file" in line and "\n" not in line


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--kv-heads", "two"], "--kv-heads"),
        (["--group", "2-3"], "one per layer"),
        (["--kv-heads", "2,2"], "each of 3 layers"),
        (["--tokens", "absent.json"], "No such file"),
        (["--tokens", "a.npy"], "JSON list"),
        (["--tokens", "short.json"], "21 ids"),
    ],
)
def test_bad_options_on_the_command_line(tmp_path, monkeypatch, capsys, options, words):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", matrices())
    (tmp_path / "short.json").write_text("[1, 2]")
    assert main(["import", "a.npy", "--out", "t", *options]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("h2o-theory: BadArgument: ") and words in captured.err
    assert captured.out == "" and not (tmp_path / "t").exists()


def test_grouping_by_layer_on_the_command_line(tmp_path):
    np.save(tmp_path / "a.npy", matrices())
    command = ["import", str(tmp_path / "a.npy"), "--out", str(tmp_path / "t")]
    assert main([*command, "--group", "4,2,1"]) == 0
    trace = open_trace(tmp_path / "t")
    assert [trace.layer(layer).group for layer in trace.layers] == [4, 2, 1]


def test_the_size_of_an_import_is_predicted(tmp_path):
    np.save(tmp_path / "a.npy", matrices(dtype="f2"))
    import_attention(tmp_path / "a.npy", tmp_path / "t")
    triangle = TOKENS * (TOKENS + 1) // 2
    assert predict_bytes(open_trace(tmp_path / "t").spec) == LAYERS * HEADS * triangle * 2
