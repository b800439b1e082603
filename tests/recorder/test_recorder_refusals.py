"""Models, arguments and uses that the recorder refuses by name, leaving nothing on disk."""

import sys

import pytest
import torch
import transformers
from recorder_models import CACHE, leftovers, tokens

from h2o_theory.errors import (
    BadArgument,
    MissingDependency,
    OutOfRange,
    RecordingRefused,
    UnsupportedModel,
)
from h2o_theory.recorder import FAMILIES, admission, record
from h2o_theory.recorder.tiny import tiny_model


def require_refusal(error, folder, model, *calls, match="", **options):
    """Entering, or one of the calls inside the block, raises; the folder stays empty."""
    before = getattr(getattr(model, "config", None), "_attn_implementation", None)
    with pytest.raises(error, match=match):
        with torch.no_grad(), record(model, folder / "t", **options):
            for call in calls:
                call(model)
    assert leftovers(folder) == []
    assert getattr(getattr(model, "config", None), "_attn_implementation", None) == before


SIZES = {
    "vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64,
}  # fmt: skip


def other_model(family, **options):
    config = transformers.AutoConfig.for_model(family, **{**SIZES, **options})
    return transformers.AutoModel.from_config(config, attn_implementation="eager").eval()


@pytest.mark.parametrize(
    "family, options, reason",
    [
        ("bloom", {}, "ALiBi"),
        ("mpt", {"d_model": 32, "n_heads": 4, "n_layers": 2}, "ALiBi"),
        ("falcon", {}, "does not take its attention from transformers' interface"),
        ("t5", {"d_model": 32, "d_kv": 8, "num_heads": 4, "num_layers": 2}, "relative position"),
        ("bart", {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1,
                  "encoder_attention_heads": 4, "decoder_attention_heads": 4}, "cross-attention"),
        ("bert", {}, "not causal"),
        ("roberta", {}, "not causal"),
        ("deepseek_v3", {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4,
                         "qk_nope_head_dim": 4, "v_head_dim": 8, "first_k_dense_replace": 2},
         "latent vectors"),
        ("mamba", {}, "recurrent state"),
        ("qwen3_next", {"num_experts": 2, "head_dim": 8, "num_key_value_heads": 2,
                        "linear_num_key_heads": 2, "linear_num_value_heads": 2}, "recurrent"),
        ("codegen", {"n_embd": 32, "n_head": 4, "n_layer": 2, "rotary_dim": 4}, "got codegen;"),
    ],
)  # fmt: skip
def test_an_unsupported_family_is_refused_by_name(tmp_path, family, options, reason):
    model = other_model(family, **options)
    require_refusal(UnsupportedModel, tmp_path, model, match=f"got {family}.*expected llama or opt")
    require_refusal(UnsupportedModel, tmp_path, model, match=reason)


def test_cross_attention_in_a_known_family(tmp_path):
    model = tiny_model("gpt2", attention="eager", add_cross_attention=True)
    require_refusal(UnsupportedModel, tmp_path, model, match="attention is not causal")


def test_attention_that_sees_both_ways_in_a_known_family(tmp_path):
    model = tiny_model("gemma3_text", use_bidirectional_attention=True)
    require_refusal(UnsupportedModel, tmp_path, model, match="not causal.*sees the past only")


def test_an_eager_path_that_bypasses_the_interface(tmp_path):
    model = tiny_model("gpt2", attention="eager", reorder_and_upcast_attn=True)
    require_refusal(UnsupportedModel, tmp_path, model, match="reorder_and_upcast_attn")


def test_attention_that_does_not_go_through_the_interface(tmp_path, monkeypatch):
    """BLOOM, had it been on the list, and a model that ignores the switch."""
    known = {"bloom": FAMILIES["llama"], "llama": FAMILIES["llama"]}
    monkeypatch.setattr(admission, "FAMILIES", known)
    require_refusal(UnsupportedModel, tmp_path, other_model("bloom"), match="0 attention modules")
    model = tiny_model("llama")
    monkeypatch.setattr(model, "set_attn_implementation", lambda name: None)
    require_refusal(UnsupportedModel, tmp_path, model, match="does not take its attention")


@pytest.mark.parametrize("family", ["gpt_oss", "gemma2"])
def test_sdpa_where_it_drops_sinks_or_softcap(tmp_path, family):
    model = tiny_model(family)
    model.config._attn_implementation = "sdpa"
    require_refusal(UnsupportedModel, tmp_path, model, match="leaves out.*='eager'")


def test_sinks_with_sdpa(tmp_path):
    require_refusal(
        UnsupportedModel, tmp_path, tiny_model("llama"),
        lambda model: model(tokens(8), s_aux=torch.zeros(4)), match="drops the attention sinks",
    )  # fmt: skip


def test_a_position_bias(tmp_path):
    require_refusal(
        UnsupportedModel, tmp_path, tiny_model("llama"),
        lambda model: model(tokens(8), position_bias=torch.zeros(1, 4, 8, 8)),
        match="position bias",
    )  # fmt: skip


def test_softcap_with_sdpa(tmp_path):
    require_refusal(
        UnsupportedModel, tmp_path, tiny_model("llama"),
        lambda model: model(tokens(8), softcap=2.0), match="layer 0.*attn_implementation='eager'",
    )  # fmt: skip


def test_softcap_that_the_model_ignores(tmp_path):
    """LLaMA's eager attention takes a softcap and drops it: the self-check sees that."""
    require_refusal(
        RecordingRefused,
        tmp_path,
        tiny_model("llama", attention="eager"),
        lambda model: model(tokens(20), softcap=2.0),
        match="do not reproduce",
    )


@pytest.mark.parametrize(
    "family, option",
    [("llama", "attention_dropout"), ("opt", "dropout"), ("opt", "layerdrop"),
     ("gpt_neox", "hidden_dropout"), ("gpt_neox", "attention_dropout")],
)  # fmt: skip
def test_dropout_in_training_mode(tmp_path, family, option):
    silent = {"dropout": 0.0} if family == "opt" else {}
    model = tiny_model(family, **{**silent, option: 0.1}).train()
    require_refusal(UnsupportedModel, tmp_path, model, match="dropout is active")


def test_dropout_switched_on_inside_the_block(tmp_path):
    model = tiny_model("llama", attention_dropout=0.1)
    require_refusal(
        UnsupportedModel, tmp_path, model, lambda model: model.train()(tokens(8)), match="dropout"
    )


def test_training_mode_without_dropout_is_fine(tmp_path):
    model = tiny_model("llama").train()
    with record(model, tmp_path / "t") as recording:
        model(tokens(8))
    assert recording.report.rows == 8


def test_another_attention_implementation(tmp_path):
    model = tiny_model("llama", attention="flex_attention")
    require_refusal(UnsupportedModel, tmp_path, model, match="got flex_attention")


def test_attention_modules_elsewhere(tmp_path):
    model = tiny_model("llama")
    model.model.layers = model.model.layers[:2]
    require_refusal(UnsupportedModel, tmp_path, model, match="2 attention modules")


def test_a_batch_that_changes_its_size(tmp_path):
    require_refusal(
        RecordingRefused, tmp_path, tiny_model("opt"), lambda model: model(tokens(8)),
        lambda model: model(tokens(8).repeat(2, 1)), match="sequences changed, got 2; expected 1",
    )  # fmt: skip


def test_embeddings_instead_of_tokens(tmp_path):
    embeddings = torch.randn(1, 8, 64)
    require_refusal(
        RecordingRefused, tmp_path, tiny_model("llama"),
        lambda model: model(inputs_embeds=embeddings), match="input_ids",
    )  # fmt: skip


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_second_sequence(tmp_path, attention):
    model = tiny_model("gpt_neox", attention=attention)
    run = lambda model: model(tokens(8), use_cache=False)  # noqa: E731
    require_refusal(RecordingRefused, tmp_path, model, run, run, match="reach back.*one batch of")


def test_starting_in_the_middle_of_a_sequence(tmp_path):
    model = tiny_model("llama")
    cache = transformers.DynamicCache(config=model.config)
    model(tokens(8), **{CACHE: cache}, use_cache=True)
    require_refusal(
        RecordingRefused, tmp_path, model,
        lambda model: model(tokens(1), **{CACHE: cache}, use_cache=True),
        match="from their first tokens",
    )  # fmt: skip


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_packed_documents(tmp_path, attention):
    positions = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3]])
    require_refusal(
        RecordingRefused, tmp_path, tiny_model("llama", attention=attention),
        lambda model: model(tokens(9), position_ids=positions, use_cache=False),
        match="token 5: .*itself: a second sequence",
    )  # fmt: skip


def test_a_mask_with_holes_or_a_bias(tmp_path):
    model = tiny_model("llama")
    holes = torch.ones(9, 9, dtype=torch.bool).tril()
    holes[6, 3] = False
    require_refusal(
        RecordingRefused, tmp_path, model,
        lambda model: model(tokens(9), attention_mask=holes[None, None]), match="token 6",
    )  # fmt: skip
    bias = torch.where(torch.ones(9, 9).tril() > 0, -0.5, torch.finfo(torch.float32).min)
    require_refusal(
        RecordingRefused, tmp_path, model,
        lambda model: model(tokens(9), attention_mask=bias[None, None]), match="bias",
    )  # fmt: skip


def test_a_mask_that_shows_the_future(tmp_path):
    everything = torch.ones(1, 1, 9, 9, dtype=torch.bool)
    require_refusal(
        RecordingRefused, tmp_path, tiny_model("llama"),
        lambda model: model(tokens(9), attention_mask=everything), match="causal",
    )  # fmt: skip


def test_a_rolled_back_cache(tmp_path):
    model = tiny_model("llama")
    cache = transformers.DynamicCache(config=model.config)

    def roll_back(model):
        model(tokens(8), **{CACHE: cache}, use_cache=True)
        cache.crop(-3)
        model(tokens(2), **{CACHE: cache}, use_cache=True)

    require_refusal(RecordingRefused, tmp_path, model, roll_back, match="reach back")


def test_a_cache_that_changes_its_past(tmp_path):
    model = tiny_model("llama")
    cache = transformers.DynamicCache(config=model.config)

    def tamper(model):
        model(tokens(8), **{CACHE: cache}, use_cache=True)
        cache.layers[1].keys[0, 1, 7, 3] += 1e-3
        model(tokens(2), **{CACHE: cache}, use_cache=True)

    require_refusal(RecordingRefused, tmp_path, model, tamper, match="layer 1.*in one forward pass")


def test_numbers_that_are_not_finite(tmp_path):
    model = tiny_model("opt")
    with torch.no_grad():
        model.model.decoder.layers[1].self_attn.v_proj.bias[5] = float("nan")
    require_refusal(
        RecordingRefused, tmp_path, model, lambda model: model(tokens(8)), match="layer 1, v"
    )


def test_numbers_too_large_for_the_storage_dtype(tmp_path):
    model = tiny_model("opt")
    with torch.no_grad():
        model.model.decoder.layers[0].self_attn.v_proj.bias[5] = 1e6
    run = lambda model: model(tokens(8))  # noqa: E731
    require_refusal(RecordingRefused, tmp_path, model, run, match="float16", store_dtype="float16")
    with record(model, tmp_path / "t") as recording:
        run(model)
    assert recording.report.rows == 8


def test_a_model_that_is_not_one(tmp_path):
    require_refusal(BadArgument, tmp_path, torch.nn.Linear(2, 2), match="transformers model")
    require_refusal(BadArgument, tmp_path, tiny_model("opt").double(), match="float64")


@pytest.mark.parametrize(
    "options, error, match",
    [
        ({"layers": [0, 3]}, OutOfRange, "layers must be 0 to 2.*got 3"),
        ({"layers": [-1]}, OutOfRange, "got -1"),
        ({"layers": []}, BadArgument, "at least one layer"),
        ({"layers": ["0"]}, BadArgument, "whole numbers"),
        ({"layers": 2}, BadArgument, "whole numbers"),
        ({"kv_heads": [4]}, OutOfRange, "kv_heads must be 0 to 3.*got 4"),
        ({"kv_heads": []}, BadArgument, "at least one kv_head"),
        ({"store": "kv"}, BadArgument, "must be qkv, qk or attention, got kv"),
        ({"tokens": 0}, BadArgument, "tokens.*got 0"),
        ({"prompt_length": "5"}, BadArgument, "prompt_length"),
        ({"store_dtype": "float8"}, BadArgument, "got float8"),
        ({"self_check_rows": 0}, BadArgument, "got 0"),
        ({"self_check_rows": 1.5}, BadArgument, "got 1.5"),
        ({"token_strings": True}, BadArgument, "tokenizer"),
    ],
)
def test_bad_arguments(tmp_path, options, error, match):
    require_refusal(error, tmp_path, tiny_model("opt"), match=match, **options)


def test_without_torch_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingDependency, match=r'pip install "h2o-theory\[record\]"'):
        with record(object(), tmp_path / "t"):
            pass


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_autocast_is_refused(tmp_path, attention, dtype):
    """What attention rounds on its inside is in no captured tensor."""

    def run(model):
        with torch.autocast("cpu", getattr(torch, dtype)):
            model(tokens(8))

    model = tiny_model("llama", attention=attention)
    require_refusal(UnsupportedModel, tmp_path, model, run, match=f"torch.autocast.*in {dtype}")
    with torch.autocast("cpu", enabled=False), record(model, tmp_path / "t"):
        model(tokens(8))
