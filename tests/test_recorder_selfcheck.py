"""The self-check and the reading of masks: they pass the truth and catch each kind of lie."""

import numpy as np
import pytest
import torch
import transformers
from recorder_models import LAYERS, leftovers, tiny_model, tokens

from h2o_theory.errors import RecordingRefused
from h2o_theory.recorder import call, record, registration, session
from h2o_theory.recorder.selfcheck import output_error, rows_to_check
from h2o_theory.recorder.visibility import visible_intervals


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
    honest = session.to_storage
    monkeypatch.setattr(
        session, "to_storage",
        lambda tensor, dtype: honest(tensor.flip(0) if len(tensor) == 2 else tensor, dtype),
    )  # fmt: skip
    require_detection(tmp_path, tiny_model("llama"))


def test_a_stored_interval_off_by_one_is_caught(tmp_path, monkeypatch):
    def shifted(mask, queries, keys, *, implicit_causal):
        lo, hi = visible_intervals(mask, queries, keys, implicit_causal=implicit_causal)
        return np.minimum(lo + 1, hi - 1), hi

    monkeypatch.setattr(session, "visible_intervals", shifted)
    monkeypatch.setattr(session, "refuse_non_causal", lambda *arguments: None)
    require_detection(tmp_path, tiny_model("llama"))
    assert call.refuse_non_causal is not session.refuse_non_causal


def test_rows_to_check():
    assert rows_to_check(0, 3, 4, 0).tolist() == [0, 1, 2]
    assert rows_to_check(0, 100, 1, 5).tolist() == [99]
    for layer in range(40):
        rows = rows_to_check(0, 512, 4, layer)
        assert len(rows) == 4 and rows[-1] == 511 and (np.diff(rows) > 0).all() and rows[0] >= 0
    assert len({tuple(rows_to_check(0, 512, 4, layer)) for layer in range(30)}) == 30
    steps = [t for t in range(64) if len(rows_to_check(t, 1, 4, 0))]
    assert steps == [*range(16), 31, 47, 63]


def reference_output(query, key, value, lo, hi, scaling, softcap):
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
            weights = np.exp(logits - logits.max())
            output[row, head] = weights @ value[head // group, seen] / weights.sum()
    return output


@pytest.mark.parametrize("softcap", [None, 2.0])
def test_output_error_against_a_plain_loop(softcap):
    rng = np.random.default_rng(1)
    query, key = rng.normal(size=(6, 4, 8)), rng.normal(size=(3, 20, 8))
    value = rng.normal(size=(3, 20, 5))
    lo, hi = np.array([0, 2, 9, 0]), np.array([1, 12, 10, 20])
    truth = reference_output(query, key, value, lo, hi, 0.7, softcap)
    tensors = [torch.from_numpy(array).float() for array in (query, key, value)]
    error = output_error(*tensors, lo, hi, torch.from_numpy(truth), 0.7, softcap)
    assert error < 2e-6
    truth[2, 4] *= 1.01
    error = output_error(*tensors, lo, hi, torch.from_numpy(truth), 0.7, softcap)
    assert error == pytest.approx(0.01 / 1.01, rel=1e-3)
    truth[2, 4] = 0
    assert output_error(*tensors, lo, hi, torch.from_numpy(truth), 0.7, softcap) == np.inf
    truth[2, 4] = np.nan
    assert np.isnan(output_error(*tensors, lo, hi, torch.from_numpy(truth), 0.7, softcap))


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
    lo, hi = visible_intervals(mask, count, keys, implicit_causal=False)
    assert np.stack([lo, hi], axis=1).tolist() == expected
    assert lo.dtype == hi.dtype == np.int32


def test_intervals_without_a_mask():
    lo, hi = visible_intervals(None, 4, 9, implicit_causal=True)
    assert lo.tolist() == [0, 0, 0, 0] and hi.tolist() == [1, 2, 3, 4]
    assert visible_intervals(None, 1, 9, implicit_causal=False)[1].tolist() == [9]
    with pytest.raises(RecordingRefused, match="sees the future"):
        visible_intervals(None, 4, 4, implicit_causal=False)


@pytest.mark.parametrize(
    "shape, match", [((1, 2, 4, 4), "shape"), ((4, 4), "shape"), ((1, 1, 4, 3), "shape")]
)
def test_masks_of_another_shape(shape, match):
    with pytest.raises(RecordingRefused, match=match):
        visible_intervals(torch.ones(shape, dtype=torch.bool), 4, 4, implicit_causal=False)
