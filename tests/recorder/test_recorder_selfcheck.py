"""The self-check and the reading of masks: they pass the truth and catch each kind of lie."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from recorder_models import LAYERS, leftovers, tokens

from h2o_theory.errors import RecordingRefused
from h2o_theory.recorder import record, registration, sequence, session
from h2o_theory.recorder.call import Call, LayerArithmetic
from h2o_theory.recorder.placement import place
from h2o_theory.recorder.selfcheck import output_error, rows_to_check
from h2o_theory.recorder.tiny import tiny_model
from h2o_theory.recorder.visibility import read_mask


def require_detection(folder, model, match="do not reproduce", count=30):
    with pytest.raises(RecordingRefused, match=match):
        with torch.no_grad(), record(model, folder / "t"):
            model(tokens(count))
    assert leftovers(folder) == []


def lying_inner(monkeypatch, change, layer):
    """Make the real sdpa function compute something else in one layer, unseen by the recorder."""
    table = transformers.AttentionInterface._global_mapping
    honest = table["sdpa"]

    def lie(module, query, key, value, attention_mask, **options):
        if module.layer_idx != layer:
            return honest(module, query, key, value, attention_mask, **options)
        return change(honest, module, query, key, value, attention_mask, options)

    monkeypatch.setitem(table, "sdpa", lie)


def rescaled(honest, module, query, key, value, mask, options):
    return honest(module, query, key, value, mask, **{**options, "scaling": 1.001 / 4})


def shows_the_future(honest, module, query, key, value, mask, options):
    everything = torch.ones(1, 1, query.shape[2], key.shape[2], dtype=torch.bool)
    return honest(module, query, key, value, everything, **options)


def windowed(honest, module, query, key, value, mask, options):
    count = query.shape[2]
    lag = torch.arange(count)[:, None] - torch.arange(count)
    return honest(module, query, key, value, ((lag >= 0) & (lag < 20))[None, None], **options)


def other_head(honest, module, query, key, value, mask, options):
    return honest(module, query, key.flip(1), value, mask, **options)


def with_sink(honest, module, query, key, value, mask, options):
    output, weights = honest(module, query, key, value, mask, **options)
    return output * 0.999, weights


@pytest.mark.parametrize("layer", range(LAYERS))
@pytest.mark.parametrize("change", [rescaled, shows_the_future, windowed, other_head, with_sink])
def test_a_lie_in_any_one_layer_is_caught(tmp_path, monkeypatch, change, layer):
    lying_inner(monkeypatch, change, layer)
    require_detection(tmp_path, tiny_model("llama"), match=f"layer {layer},")


def test_layers_that_are_not_recorded_are_not_checked(tmp_path, monkeypatch):
    lying_inner(monkeypatch, rescaled, 1)
    model = tiny_model("llama")
    with torch.no_grad(), record(model, tmp_path / "t", layers=[0, 2]) as recording:
        model(tokens(30))
    assert set(recording.report.check_error) == {0, 2}


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_a_mask_half_that_is_missing_is_caught(tmp_path, monkeypatch, family):
    """Trap: with the attention function alone registered, eager attention loses its mask."""
    monkeypatch.setattr(
        registration, "_register",
        lambda: transformers.AttentionInterface.register(registration.NAME, registration.attend),
    )  # fmt: skip
    monkeypatch.delitem(
        transformers.AttentionMaskInterface._global_mapping, registration.NAME, raising=False
    )
    require_detection(tmp_path, tiny_model(family, attention="eager"), match="without a mask")


def test_a_stored_head_out_of_order_is_caught(tmp_path, monkeypatch):
    honest = sequence.to_storage
    monkeypatch.setattr(
        sequence, "to_storage",
        lambda tensor, dtype: honest(tensor.flip(0) if len(tensor) == 2 else tensor, dtype),
    )  # fmt: skip
    require_detection(tmp_path, tiny_model("llama"))


def test_a_stored_interval_off_by_one_is_caught(tmp_path, monkeypatch):
    def shifted(*arguments):
        offset, placed = place(*arguments)
        return offset, [replace(spot, lo=np.minimum(spot.lo + 1, spot.hi - 1)) for spot in placed]

    monkeypatch.setattr(session, "place", shifted)
    require_detection(tmp_path, tiny_model("llama"))


def test_rows_to_check():
    assert rows_to_check(0, 3, 4, 0).tolist() == [0, 1, 2]
    assert rows_to_check(0, 100, 1, 5).tolist() == [99]
    for layer in range(40):
        rows = rows_to_check(0, 512, 4, layer)
        assert len(rows) == 4 and rows[-1] == 511 and (np.diff(rows) > 0).all() and rows[0] >= 0
    assert len({tuple(rows_to_check(0, 512, 4, layer)) for layer in range(30)}) == 30
    steps = [t for t in range(64) if len(rows_to_check(t, 1, 4, 0))]
    assert steps == [*range(16), 31, 47, 63]


def reference_output(query, key, value, lo, hi, scaling, softcap, sinks):
    """Attention in float64, one head and one row at a time."""
    q_heads, rows, _ = query.shape
    group = q_heads // key.shape[0]
    output = np.empty((rows, q_heads, value.shape[2]))
    for head in range(q_heads):
        for row in range(rows):
            seen = slice(lo[row], hi[row])
            logits = key[head // group, seen] @ query[head, row] * scaling
            if softcap:
                logits = softcap * np.tanh(logits / softcap)
            weights = np.exp(logits)
            total = weights.sum() + (0 if sinks is None else np.exp(sinks[head]))
            output[row, head] = weights @ value[head // group, seen] / total
    return output


@pytest.mark.parametrize("base", [0, 30])
@pytest.mark.parametrize(
    "softcap, sinks", [(None, None), (2.0, None), (None, [-1.0, 0, 1, 2, 3, 4])]
)
def test_output_error_against_a_plain_loop(softcap, sinks, base):
    rng = np.random.default_rng(1)
    query, key = rng.normal(size=(6, 4, 8)), rng.normal(size=(3, 20, 8))
    value = rng.normal(size=(3, 20, 5))
    lo, hi = np.array([0, 2, 9, 0]), np.array([1, 12, 10, 20])
    truth = reference_output(query, key, value, lo, hi, 0.7, softcap, sinks)
    tensors = [torch.from_numpy(array).float() for array in (query, key, value)]
    arithmetic = LayerArithmetic(0.7, softcap, None if sinks is None else torch.tensor(sinks), None)

    def error(output):
        call = Call(0, base + 16, base + 20, base, *tensors, torch.from_numpy(output), lo + base,
                    hi + base, "sdpa", arithmetic)  # fmt: skip
        return output_error(call, np.arange(4), *tensors)

    assert error(truth) < 2e-6
    truth[2, 4] *= 1.01
    assert error(truth) == pytest.approx(0.01 / 1.01, rel=1e-3)
    truth[2, 4] = 0
    assert error(truth) == np.inf
    truth[2, 4] = np.nan
    assert np.isnan(error(truth))


def causal(count, keys=None, window=None):
    offset = (keys or count) - count
    lag = torch.arange(count)[:, None] + offset - torch.arange(keys or count)
    return ((lag >= 0) & (lag < (window or 10**9)))[None, None]


@pytest.mark.parametrize("count, keys, window", [(1, 1, None), (7, 7, None), (600, 600, 40),
                                                 (5, 300, None), (300, 900, 17)])  # fmt: skip
@pytest.mark.parametrize("kind", ["bool", "min", "inf"])
def test_intervals_are_read_off_a_mask(count, keys, window, kind):
    mask = causal(count, keys, window)
    expected = [[int(row.nonzero()[0]), int(row.nonzero()[-1]) + 1] for row in mask[0, 0]]
    if kind != "bool":
        low = torch.finfo(torch.float16).min if kind == "min" else -torch.inf
        mask = torch.where(mask, 0.0, low).half()
    seen = read_mask(mask, (2, count, keys), inner="eager", causal=False)
    for sequence_seen in zip(seen.first, seen.last, strict=True):
        assert [[a, b + 1] for a, b in zip(*sequence_seen, strict=True)] == expected
    assert np.array_equal(seen.count, seen.last - seen.first + 1)


def test_rows_without_a_mask():
    seen = read_mask(None, (1, 4, 9), inner="sdpa", causal=True)
    assert seen.first.tolist() == [[0, 0, 0, 0]] and seen.last.tolist() == [[0, 1, 2, 3]]
    assert read_mask(None, (1, 1, 9), inner="eager", causal=False).last.tolist() == [[8]]
    assert read_mask(None, (1, 4, 9), inner="flash_attention_2", causal=True).last.tolist() == [
        [5, 6, 7, 8]
    ]
    for inner, shows in (("sdpa", False), ("eager", True), ("flash_attention_2", False)):
        with pytest.raises(RecordingRefused, match="sees the future"):
            read_mask(None, (1, 4, 4), inner=inner, causal=shows)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("rows", [1, 2, 8])
def test_the_padding_mask_of_flash_attention(window, rows):
    """The same rows and keys as in the dense mask that sdpa would have been given."""
    real = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1], [1] * 8, [1, 1, 1, 1, 1, 0, 0, 0]]).bool()
    dense = causal(rows, 8, window) & real[:, None, None]
    ours = read_mask(real, (3, rows, 8), inner="flash_attention_2", causal=True, window=window)
    theirs = read_mask(dense, (3, rows, 8), inner="sdpa", causal=True)
    own = real[:, 8 - rows :].numpy()
    for found, wanted in ((ours.first, theirs.first), (ours.last, theirs.last)):
        assert np.array_equal(found[own], wanted[own])
    assert np.array_equal(ours.count[own], theirs.count[own]) and not ours.count[~own].any()


@pytest.mark.parametrize(
    "shape, match", [((1, 2, 4, 4), "shape"), ((4, 4), "shape"), ((1, 1, 4, 3), "shape")]
)
def test_masks_of_another_shape(shape, match):
    mask = torch.ones(shape, dtype=torch.bool)
    for inner in ("sdpa", "flash_attention_2"):
        with pytest.raises(RecordingRefused, match=match):
            read_mask(mask, (1, 4, 5), inner=inner, causal=False or inner != "sdpa")


def test_padding_is_found_and_taken_out():
    """Left, right and middle padding: positions and intervals are those without it."""
    real = np.array([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [1, 0, 0, 1, 1, 1]], dtype=bool)
    mask = causal(6) & torch.from_numpy(real)[:, None, None]
    seen = read_mask(mask, (3, 6, 6), inner="sdpa", causal=True)
    offset, placed = place("here", seen, np.zeros((3, 0), dtype=bool), 6, None)
    assert offset == 0
    for spot, row_is_real in zip(placed, real, strict=True):
        assert np.array_equal(spot.rows, np.flatnonzero(row_is_real))
        assert np.array_equal(spot.columns, spot.rows) and (spot.start, spot.stop) == (0, 4)
        assert spot.lo.tolist() == [0] * 4 and spot.hi.tolist() == [1, 2, 3, 4]
        assert spot.lo.dtype == spot.hi.dtype == np.int32


def test_a_buffer_that_begins_late_is_placed_by_its_window():
    seen = read_mask(causal(2, 6, 5), (1, 2, 6), inner="sdpa", causal=True)
    earlier = np.ones((1, 10), dtype=bool)
    offset, (spot,) = place("here", seen, earlier, 6, 5)
    assert offset == 6 and spot.base == 6 and (spot.start, spot.stop) == (10, 12)
    assert spot.lo.tolist() == [6, 7] and spot.hi.tolist() == [11, 12]
    for window in (None, 6):  # the keys of token 5 should be there
        with pytest.raises(RecordingRefused, match="reach back"):
            place("here", seen, earlier, 6, window)
