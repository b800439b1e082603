"""Recorded rows against the attention that the models themselves report."""

import numpy as np
import pytest
import torch
import transformers
from recorder_models import (
    CACHE,
    FAMILIES,
    HEADS,
    LAYERS,
    own_rows,
    tokens,
    traced_rows,
)

from h2o_theory.recorder import record
from h2o_theory.recorder.tiny import LLAMA3, tiny_model
from h2o_theory.trace import open_trace, validate

HALF_TOLERANCE = {"float16": 2e-3, "bfloat16": 1.5e-2}
"""The models round their own rows; about five times the largest gap seen on these models."""


def recorded(model, ids, out, **options):
    with torch.no_grad(), record(model, out, **options) as recording:
        model(ids, use_cache=False)
    return open_trace(recording.path)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_rows_equal_the_models_own(tmp_path, family, attention):
    model, ids = tiny_model(family, attention=attention), tokens(50)
    trace, expected = recorded(model, ids, tmp_path / "t"), own_rows(model, ids)
    assert np.ptp(expected[:, :, -1], axis=-1).min() > 0.1, "rows too flat to prove anything"
    assert trace.layers == tuple(range(LAYERS))
    for layer in trace.layers:
        rows = traced_rows(trace, layer)
        assert rows.shape == (HEADS, 50, 50)
        assert np.abs(rows - expected[layer]).max(axis=(1, 2)).tolist() == pytest.approx(
            [0] * HEADS, abs=1e-5
        )
    assert validate(trace).rows == LAYERS * HEADS * 50


@pytest.mark.parametrize("dtype", HALF_TOLERANCE)
@pytest.mark.parametrize("family", FAMILIES)
def test_half_precision_rows(tmp_path, family, dtype):
    model, ids = tiny_model(family, attention="eager", dtype=dtype), tokens(40)
    trace, expected = recorded(model, ids, tmp_path / "t"), own_rows(model, ids)
    assert trace.spec.dtype == trace.spec.model["dtype"] == dtype
    for layer in trace.layers:
        assert np.abs(traced_rows(trace, layer) - expected[layer]).max() < HALF_TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_keys_and_values_are_those_of_the_kv_cache_bit_for_bit(tmp_path, family, dtype):
    model, ids = tiny_model(family, dtype=dtype), tokens(30)
    trace = recorded(model, ids, tmp_path / "t")
    with torch.no_grad():
        cache = model(ids, use_cache=True).past_key_values
    for layer in trace.layers:
        keys, values = cache.layers[layer].keys[0].float(), cache.layers[layer].values[0].float()
        for kv_head in trace.kv_heads(layer):
            assert np.array_equal(trace.keys(layer, kv_head), keys[kv_head].numpy())
            assert np.array_equal(trace.values(layer, kv_head), values[kv_head].numpy())


def test_values_times_rows_give_the_attention_output(tmp_path):
    model, ids = tiny_model("llama"), tokens(30)
    outputs = []
    hook = model.model.layers[1].self_attn.o_proj.register_forward_pre_hook(
        lambda module, args: outputs.append(args[0][0])
    )
    trace = recorded(model, ids, tmp_path / "t")
    hook.remove()
    rows = traced_rows(trace, 1).reshape(2, 2, 30, 30)
    values = np.stack([trace.values(1, kv_head) for kv_head in range(2)])
    again = np.einsum("kgtj,kjd->tkgd", rows, values).reshape(30, -1)
    assert np.abs(again - outputs[0].numpy()).max() < 1e-5


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_prefill_in_pieces_gives_the_same_rows(tmp_path, family, attention):
    model, ids = tiny_model(family, attention=attention), tokens(45)
    cache = transformers.DynamicCache(config=model.config)
    with torch.no_grad(), record(model, tmp_path / "t") as recording:
        for piece in ids.split([20, 1, 7, 17], dim=1):
            model(piece, **{CACHE: cache}, use_cache=True)
    trace, expected = open_trace(recording.path), own_rows(model, ids)
    assert trace.tokens == 45 and trace.spec.prompt_length == 20
    assert trace.spec.token_ids == tuple(ids[0].tolist())
    for layer in trace.layers:
        assert np.abs(traced_rows(trace, layer) - expected[layer]).max() < 1e-5


@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("family", FAMILIES)
def test_generation_records_prompt_and_generated_tokens(tmp_path, family, cache):
    model, ids = tiny_model(family), tokens(12)
    options = {"max_new_tokens": 24, "min_new_tokens": 24, "do_sample": False}
    if cache:
        options |= {"cache_implementation": cache, "disable_compile": True}
    with record(model, tmp_path / "t") as recording:
        sequence = model.generate(ids, **options)
    assert torch.equal(sequence, model.generate(ids, **options))
    trace = open_trace(recording.path)
    fed = sequence[:, :-1]  # the last token is never fed back
    assert trace.spec.token_ids == tuple(fed[0].tolist()) and trace.spec.prompt_length == 12
    expected = own_rows(model, fed)
    for layer in trace.layers:
        assert np.abs(traced_rows(trace, layer) - expected[layer]).max() < 2e-5
    assert set(recording.report.check_error) == set(trace.layers)


def test_only_the_layers_asked_for(tmp_path):
    model, ids = tiny_model("llama"), tokens(20)
    trace, expected = recorded(model, ids, tmp_path / "t", layers=[2, 0]), own_rows(model, ids)
    assert trace.layers == (0, 2)
    for layer in (0, 2):
        assert np.abs(traced_rows(trace, layer) - expected[layer]).max() < 1e-5


def test_without_values(tmp_path):
    model, ids = tiny_model("opt"), tokens(20)
    trace, expected = recorded(model, ids, tmp_path / "t", store="qk"), own_rows(model, ids)
    assert not trace.has_values(0) and trace.layer(0).value_dim == 0
    assert np.abs(traced_rows(trace, 1) - expected[1]).max() < 1e-5


def test_storing_less_precisely_than_the_model(tmp_path):
    model, ids = tiny_model("gpt_neox"), tokens(40)
    expected = own_rows(model, ids)
    for dtype, accepted in HALF_TOLERANCE.items():
        trace = recorded(model, ids, tmp_path / dtype, store_dtype=dtype)
        assert trace.spec.dtype == dtype and trace.spec.model["dtype"] == "float32"
        assert np.abs(traced_rows(trace, 0) - expected[0]).max() < accepted


def test_a_visible_window_from_the_users_mask_is_kept(tmp_path):
    """A 4-D mask reaches attention without the mask function; the intervals are read from it."""
    model, ids = tiny_model("llama"), tokens(24)
    position = torch.arange(24)
    lag = position[:, None] - position
    mask = ((lag >= 0) & (lag < 6))[None, None]
    with torch.no_grad(), record(model, tmp_path / "t") as recording:
        model(ids, attention_mask=mask, use_cache=False)
    trace = open_trace(recording.path)
    assert trace.tensor(1, "lo").tolist() == [max(0, t - 5) for t in range(24)]
    assert np.array_equal(traced_rows(trace, 0) > 0, np.broadcast_to(mask[0], (4, 24, 24)))


def test_the_spec_says_what_was_recorded(tmp_path):
    model, ids = tiny_model("llama"), tokens(20)
    with (
        torch.no_grad(),
        record(
            model,
            tmp_path / "t",
            model_provenance={"id": "tiny"},
            text_provenance={"name": "random"},
        ) as recording,
    ):
        model(ids)
    spec, report = open_trace(recording.path).spec, recording.report
    assert spec.model == {
        "id": "tiny", "family": "llama", "revision": "", "dtype": "float32", "attention": "sdpa",
        "rope": LLAMA3,
    }  # fmt: skip
    assert spec.token_ids == tuple(ids[0].tolist()) and spec.token_strings is None
    assert spec.prompt_length == spec.tokens == 20 and spec.text == {"name": "random"}
    assert spec.versions["torch"] == torch.__version__
    layer = spec.layers[0]
    assert (layer.q_heads, layer.kv_heads, layer.head_dim, layer.value_dim) == (4, 2, 16, 16)
    assert layer.scaling == 0.25 and layer.softcap is None and layer.sliding_window is None
    assert report.rows == 20 and report.layers == (0, 1, 2) and report.tolerance == 2e-5
    assert report.bytes == sum(file.stat().st_size for file in recording.path.iterdir())
    assert set(report.check_error) == {0, 1, 2} and max(report.check_error.values()) < 5e-6
    assert report.checked_rows == 3 * 4 and report.seconds > 0
    assert "20 tokens in 3 layers" in str(report) and "20 rows" in repr(recording)


def test_opt_passes_its_own_scaling(tmp_path):
    """OPT scales its queries beforehand; a derived 1/sqrt(d) would be wrong."""
    trace = recorded(tiny_model("opt"), tokens(10), tmp_path / "t")
    assert trace.layer(0).scaling == 1.0 and trace.layer(0).head_dim == 16
