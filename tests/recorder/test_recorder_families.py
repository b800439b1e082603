"""Every family: rows recomputed from a trace against the model's own eager attention."""

import numpy as np
import pytest
import torch
import transformers
from recorder_models import CACHE, HEADS, LAYERS, own_rows, rounding, tokens, traced_rows

from h2o_theory.cli import main
from h2o_theory.errors import UnsupportedModel
from h2o_theory.recorder import FAMILIES, record
from h2o_theory.recorder.call import Call, LayerArithmetic
from h2o_theory.recorder.selfcheck import attention_weights
from h2o_theory.recorder.tiny import WINDOW, tiny_config, tiny_model
from h2o_theory.recorder.verify import TOLERANCE, largest_deviation
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


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_half_precision_loses_nothing(tmp_path, family, dtype):
    """In the model's own dtype and order of operations, the trace gives back its very rows.

    What the test above tolerates is the model's rounding, not the trace's. Exactly zero where
    this was written, one entry of one family apart; another CPU may sum in another order, so one
    unit in the last place is accepted.
    """
    model, ids = tiny_model(family, attention="eager", dtype=dtype), tokens(40)
    with torch.no_grad(), record(model, tmp_path / "t"):
        model(ids, use_cache=False)
    trace, expected, kind = open_trace(tmp_path / "t"), own_rows(model, ids), getattr(torch, dtype)
    for layer in trace.layers:
        spec = trace.layer(layer)
        query, key = (torch.tensor(trace.tensor(layer, name)) for name in "qk")
        lo, hi = (np.array(trace.tensor(layer, name)) for name in ("lo", "hi"))
        sinks = None if spec.sinks is None else torch.tensor(spec.sinks)
        arithmetic = LayerArithmetic(spec.scaling, spec.softcap, sinks, spec.sliding_window)
        call = Call(layer, 0, 40, 0, query, key, None, None, lo, hi, "eager", arithmetic)
        rows = attention_weights(query.float(), key.float(), lo, hi, call, kind)
        rows = rows.view(HEADS, 40, 40).numpy()
        assert np.abs(rows - expected[layer]).max() <= torch.finfo(kind).eps


@pytest.mark.parametrize("family", FAMILIES)
def test_pieces_and_single_steps_give_the_same_rows(tmp_path, family):
    """Pieced prefill, then tokens one at a time, beyond the sliding window of the KV cache."""
    model, ids = tiny_model(family), tokens(34)
    cache = transformers.DynamicCache(config=model.config)
    with torch.no_grad(), record(model, tmp_path / "t"):
        for piece in ids.split([3, 11, 1, 15, 1, 1, 2], dim=1):
            model(piece, **{CACHE: cache}, use_cache=True)
    trace, expected = open_trace(tmp_path / "t"), own_rows(model, ids)
    assert trace.spec.token_ids == tuple(ids[0].tolist())
    # Logits near 23 of 24 products each, through three layers: float32 leaves gpt_oss's rows
    # 3e-5 from exact (qwen2's 5e-6). Rows vary by more than 0.02, so a mistake shows all the same.
    tolerance = max(TOLERANCE["float32"], 2 * rounding(model, ids))
    assert tolerance < 1e-4
    for layer in trace.layers:
        assert np.abs(traced_rows(trace, layer) - expected[layer]).max() <= tolerance


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


def test_the_table_of_families(capsys, monkeypatch):
    assert largest_deviation("mistral") <= TOLERANCE["float32"]
    assert main(["ls", "families"]) == 0
    listed = capsys.readouterr().out
    assert all(family in listed for family in FAMILIES)
    monkeypatch.setattr("h2o_theory.recorder.FAMILIES", {"opt": FAMILIES["opt"]})
    assert main(["ls", "families", "--verify"]) == 0
    shown = capsys.readouterr().out
    assert f"{largest_deviation('opt'):.1e}" in shown and "float32 (at most 1e-05)" in shown
    assert main(["ls", "policies", "--verify"]) == 2


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


def test_the_language_model_inside_gemma_3(tmp_path):
    """The whole is refused, its text model recorded while the whole runs."""
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    vision |= {"num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    config = transformers.Gemma3Config(
        text_config=tiny_config("gemma3_text").to_dict(), vision_config=vision,
        mm_tokens_per_image=4, image_token_index=90, boi_token_index=91, eoi_token_index=92,
    )  # fmt: skip
    config._attn_implementation = "sdpa"
    whole, ids = transformers.Gemma3ForConditionalGeneration(config).eval(), tokens(20)
    with pytest.raises(UnsupportedModel, match="record its model.language_model instead"):
        with record(whole, tmp_path / "t"):
            pass
    expected = own_rows(whole, ids)
    with torch.no_grad(), record(whole.model.language_model, tmp_path / "t"):
        whole(ids)
    for layer in range(LAYERS):
        rows = traced_rows(open_trace(tmp_path / "t"), layer)
        assert np.abs(rows - expected[layer]).max() <= 1e-5
