"""Tiny random models of every family: small enough for milliseconds, sharp enough to prove."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from h2o_theory.dependencies import require
from h2o_theory.families import FAMILIES

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

__all__ = ["SHAPES", "tiny_config", "tiny_model"]

SHAPES = {
    "vocab_size": 97,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "initializer_range": 0.25,  # sharp rows: uniform attention would hide most mistakes
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
WINDOW = 7
EXPERTS = {"num_experts_per_tok": 2, "intermediate_size": 32}
TWO_WINDOWS = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "original_max_position_embeddings": 32,
}
GROUPED = {"num_key_value_heads": 2, "intermediate_size": 96}
PLAIN = {"intermediate_size": 96}
SPECIAL = {
    "llama": {**GROUPED, "rope_parameters": LLAMA3},
    "opt": {"ffn_dim": 96, "word_embed_proj_dim": 64, "init_std": 0.25},
    "gpt_neox": PLAIN,
    "gpt2": {"scale_attn_by_inverse_layer_idx": True},
    "mistral": {**GROUPED, "sliding_window": WINDOW},
    "mixtral": {**GROUPED, **EXPERTS, "num_local_experts": 4, "sliding_window": WINDOW},
    "qwen2": {**GROUPED, "use_sliding_window": True, "sliding_window": WINDOW}
    | {"max_window_layers": 1},
    "qwen3": {**GROUPED, "head_dim": 24},
    "qwen3_moe": {**GROUPED, **EXPERTS, "head_dim": 24, "num_experts": 4}
    | {"moe_intermediate_size": 32},
    "gemma": {**GROUPED, "head_dim": 24},
    "gemma2": {**GROUPED, **TWO_WINDOWS, "head_dim": 24, "sliding_window": WINDOW}
    | {"attn_logit_softcapping": 3.0, "query_pre_attn_scalar": 4},
    "gemma3_text": {**GROUPED, **TWO_WINDOWS, "head_dim": 24, "sliding_window": WINDOW},
    "gpt_oss": {**GROUPED, **EXPERTS, **TWO_WINDOWS, "head_dim": 24, "sliding_window": WINDOW}
    | {"num_local_experts": 4, "rope_parameters": YARN},
    "phi": PLAIN,
    "phi3": {**GROUPED, "sliding_window": WINDOW},
    "stablelm": {**GROUPED, "qk_layernorm": True},
    "starcoder2": {**GROUPED, "sliding_window": WINDOW, "use_bias": True},
    "gpt_bigcode": {"multi_query": True},
    "olmo": {**GROUPED, "clip_qkv": 2.0},
    "olmo2": GROUPED,
    "olmo3": {**GROUPED, **TWO_WINDOWS, "sliding_window": WINDOW},
    "cohere": {**GROUPED, "use_qk_norm": True},
    "cohere2": {**GROUPED, **TWO_WINDOWS, "sliding_window": WINDOW},
    "granite": {**GROUPED, "attention_multiplier": 0.4},
    "smollm3": {**GROUPED, "no_rope_layers": [1, 0, 1]},
}
"""What each family's configuration adds to SHAPES, so that what is special about it is active."""


def tiny_config(family: str, **changes: Any) -> PreTrainedConfig:
    """A configuration of a family, with ``changes`` to it.

    Raises
    ------
    KeyError
        For a family that is not in ``FAMILIES``.
    """
    assert set(SPECIAL) == set(FAMILIES), "every family has a tiny configuration"
    options = {**SHAPES, **SPECIAL[family], **changes}
    if family == "opt":
        options["init_std"] = options.pop("initializer_range")
    return require("transformers").AutoConfig.for_model(family, **options)


def tiny_model(
    family: str,
    *,
    attention: str | None = None,
    dtype: str = "float32",
    seed: int = 7,
    **changes: Any,
) -> PreTrainedModel:
    """A random model in evaluation mode, the same for the same seed.

    Parameters
    ----------
    family : str
    attention : str, optional
        Inner attention; sdpa by default, eager where the family does not have that.
    dtype : {"float32", "float16", "bfloat16"}
    seed : int
    **changes
        To the configuration.

    Notes
    -----
    The global random state of torch is left as it was. Sinks are spread over -2 .. 2, so that
    they take a share of each row that a test cannot miss.
    """
    torch, transformers = require("torch"), require("transformers")
    config = tiny_config(family, **changes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    for name, parameter in model.named_parameters():
        if name.endswith("sinks"):
            parameter.data = torch.linspace(-2, 2, parameter.numel())
    if attention is None:
        attention = "sdpa" if model._supports_sdpa else "eager"
    if attention != "eager":
        model.set_attn_implementation(attention)
    return model.to(getattr(torch, dtype)).eval()
