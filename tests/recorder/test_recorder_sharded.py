"""Models whose weights are elsewhere: offloaded to CPU or disk, split over devices, via accelerate.

One machine without an accelerator has one device that computes, the CPU; what these tests cover is
weights that are absent between calls and hooks around every module. Several GPUs are not covered.
"""

import sys

import accelerate
import numpy as np
import pytest
import torch
from recorder_models import FAMILIES, Letters, own_rows, tiny_model, tokens, traced_rows

from h2o_theory.errors import BadArgument, MissingDependency
from h2o_theory.recorder import GenerationSettings, load_model, load_options, record, record_text
from h2o_theory.recorder.models import LoadedModel
from h2o_theory.trace import open_trace

SPECIAL = ["gpt_oss", "gemma2", "gpt2"]


def offloaded(model, how, folder):
    """The model with its weights away until a module needs them."""
    if how == "cpu":
        return accelerate.cpu_offload(model)
    if how == "disk":
        return accelerate.disk_offload(model, str(folder))
    device_map = accelerate.infer_auto_device_map(model, max_memory={"cpu": 200_000, "disk": 10**9})
    assert set(map(str, device_map.values())) == {"cpu", "disk"}
    return accelerate.dispatch_model(
        model, device_map, main_device="cpu", offload_dir=str(folder), force_hooks=True
    )


@pytest.mark.parametrize("how", ["cpu", "disk", "split"])
@pytest.mark.parametrize("family", [*FAMILIES, *SPECIAL])
def test_offloaded_weights(tmp_path, family, how):
    ids, expected = tokens(24), own_rows(tiny_model(family), tokens(24))
    model = offloaded(tiny_model(family), how, tmp_path / "weights")
    assert any(parameter.device.type == "meta" for parameter in model.parameters())
    with torch.no_grad(), record(model, tmp_path / "t"):
        model(ids)
    trace = open_trace(tmp_path / "t")
    for layer in trace.layers:
        assert np.abs(traced_rows(trace, layer) - expected[layer]).max() <= 1e-5


def test_texts_and_generation_with_offloaded_weights(tmp_path):
    model = accelerate.cpu_offload(tiny_model("llama"))
    model.generation_config.eos_token_id = None
    loaded = LoadedModel(model, Letters(), "letters", "llama", "", "test")
    options = {"generation": GenerationSettings(5), "piece": 4}
    spec = open_trace(record_text(loaded, "abcdefghij", None, tmp_path / "t", **options).path).spec
    assert spec.prompt_length == 10 and spec.tokens == 15


def test_a_device_map_is_made_on_request(tmp_path):
    tiny_model("llama").save_pretrained(tmp_path / "model")
    loaded = load_model(tmp_path / "model", device="auto")
    assert loaded.model.device.type in ("cpu", "cuda")
    with torch.no_grad(), record(loaded, tmp_path / "t"):
        loaded.model(tokens(8).to(loaded.model.device))
    assert open_trace(tmp_path / "t").tokens == 8


def test_the_attention_asked_for(tmp_path, monkeypatch):
    tiny_model("llama").save_pretrained(tmp_path / "model")
    for attention in ("eager", "sdpa"):
        model = load_model(tmp_path / "model", attention=attention).model
        assert model.config._attn_implementation == attention
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for name, package in (("2", "flash_attn,"), ("3", "flash_attn_interface,")):
        with pytest.raises(MissingDependency, match=package):
            load_model(tmp_path / "model", attention=f"flash_attention_{name}")
    with pytest.raises(BadArgument, match="attention must be sdpa, eager.*got flex"):
        load_model(tmp_path / "model", attention="flex")


def test_weights_on_another_device_need_accelerate(monkeypatch):
    """transformers places weights on a device by it, whether one device or several."""
    monkeypatch.setattr(load_options, "require_device", lambda device: None)
    monkeypatch.setitem(sys.modules, "accelerate", None)
    for device in ("cuda:0", "auto"):
        with pytest.raises(MissingDependency, match="accelerate"):
            load_model("smollm2-135m", device=device)


def test_an_accelerator_that_is_not_there():
    if torch.cuda.is_available():
        load_device = "cuda:99"
    else:
        load_device = "cuda"
    with pytest.raises(BadArgument, match="device must be cpu, auto.*got cuda"):
        load_model("smollm2-135m", device=load_device)
