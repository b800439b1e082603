"""Every family: rows recomputed from a trace against the model's own eager attention."""

import numpy as np
import pytest
import torch
import transformers
from recorder_models import CACHE, HEADS, LAYERS, own_rows, tokens, traced_rows

from h2o_theory.recorder import FAMILIES, record
from h2o_theory.recorder.tiny import WINDOW, tiny_model
from h2o_theory.recorder.verify import TOLERANCE
from h2o_theory.trace import open_trace, validate


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_layer_and_head_equals_eager(tmp_path, family, dtype):
    """float32 with the family's fast attention; half precision with eager, which rounds alike."""
    model = tiny_model(family, attention=None if dtype == "float32" else "eager", dtype=dtype)
    ids = tokens(40)
    expected = own_rows(model, ids)
    with torch.no_grad(), record(model, tmp_path / "t"):
        model(ids, use_cache=False)
    trace = open_trace(tmp_path / "t")
    assert trace.layers == tuple(range(LAYERS)) and trace.spec.dtype == dtype
    assert trace.spec.model["family"] == family
    for layer in trace.layers:
        rows = traced_rows(trace, layer)
        assert rows.shape == (HEADS, 40, 40)
        assert np.abs(rows - expected[layer]).max() <= TOLERANCE[dtype]
        assert np.ptp(expected[layer][:, -1], axis=-1).min() > 0.02, "too flat to prove anything"
    assert validate(trace).rows == LAYERS * HEADS * 40


@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_and_single_steps_give_the_same_rows(tmp_path, family):
    """Chunked prefill, then tokens one at a time, beyond the sliding window of the KV cache."""
    model, ids = tiny_model(family), tokens(34)
    cache = transformers.DynamicCache(config=model.config)
    with torch.no_grad(), record(model, tmp_path / "t"):
        for piece in ids.split([3, 11, 1, 15, 1, 1, 2], dim=1):
            model(piece, **{CACHE: cache}, use_cache=True)
    trace, expected = open_trace(tmp_path / "t"), own_rows(model, ids)
    assert trace.spec.token_ids == tuple(ids[0].tolist())
    for layer in trace.layers:
        assert np.abs(traced_rows(trace, layer) - expected[layer]).max() <= 1e-5


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("family", ["mistral", "qwen2", "gemma2", "gemma3_text", "gpt_oss"])
def test_generation_with_sliding_caches(tmp_path, family, cache):
    model, ids = tiny_model(family), tokens(12)
    options = {"max_new_tokens": 20, "min_new_tokens": 20, "do_sample": False}
    if cache == "static":
        options |= {"cache_implementation": "static", "disable_compile": True}
    with record(model, tmp_path / "t"):
        sequence = model.generate(ids, **options)
    assert torch.equal(sequence, model.generate(ids, **options))
    trace, expected = open_trace(tmp_path / "t"), own_rows(model, sequence[:, :-1])
    for layer in trace.layers:
        assert np.abs(traced_rows(trace, layer) - expected[layer]).max() <= 2e-5


def test_what_is_special_is_in_the_trace(tmp_path):
    def layers(family):
        model = tiny_model(family)
        with torch.no_grad(), record(model, tmp_path / family):
            model(tokens(10))
        return open_trace(tmp_path / family).spec.layers

    gemma = layers("gemma2")
    assert [layer.sliding_window for layer in gemma] == [WINDOW, None, WINDOW]
    assert gemma[0].softcap == 3.0 and gemma[0].scaling == 0.5 and gemma[0].head_dim == 24
    assert layers("gpt_oss")[1].sinks == pytest.approx(np.linspace(-2, 2, HEADS))
    assert [layer.sliding_window for layer in layers("qwen2")] == [None, WINDOW, WINDOW]
    assert [layer.scaling for layer in layers("gpt2")] == [0.25, 0.125, 0.25 / 3]
    assert layers("granite")[0].scaling == 0.4
    assert layers("gpt_bigcode")[0].kv_heads == 1 and layers("opt")[0].scaling == 1.0


def test_rows_with_sinks_sum_to_less_than_one(tmp_path):
    model, ids = tiny_model("gpt_oss"), tokens(30)
    with torch.no_grad(), record(model, tmp_path / "t"):
        model(ids)
    trace, expected = open_trace(tmp_path / "t"), own_rows(model, ids)
    for layer in trace.layers:
        sums = traced_rows(trace, layer).sum(axis=-1)
        assert np.abs(sums - expected[layer].sum(axis=-1)).max() < 1e-5
        assert sums.max() < 1 and sums.min() < 0.9


@pytest.mark.parametrize("family", ["llama", "mistral", "gpt_oss"])
def test_the_wrong_head_window_or_sink_would_be_seen(tmp_path, family):
    """The comparison above has teeth: rows of a neighbouring head or layer do not pass it."""
    model, ids = tiny_model(family), tokens(40)
    with torch.no_grad(), record(model, tmp_path / "t"):
        model(ids)
    trace, expected = open_trace(tmp_path / "t"), own_rows(model, ids)
    rows = traced_rows(trace, 1)
    assert np.abs(rows[::-1] - expected[1]).max() > 0.1
    assert np.abs(traced_rows(trace, 0) - expected[1]).max() > 0.1
    shifted = np.abs(np.roll(rows, 1, axis=-1) - expected[1]).max()
    assert shifted > 0.1
