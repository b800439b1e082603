"""The model families that can be recorded, and why well-known others cannot."""

from dataclasses import dataclass

__all__ = ["FAMILIES", "HALVES", "Family", "reason_against"]


@dataclass(frozen=True)
class Family:
    """An architecture whose recorded rows are tested against the model's own eager attention.

    Attributes
    ----------
    models : str
        Published models that have it.
    special : str
        What sets its attention apart, and the tests exercise.
    rotary : str
        ``halves`` if rotary embedding pairs coordinate f with f + w/2 of a head, in every layer
        alike; empty for every other layout, and where layers differ.
    """

    models: str
    special: str
    rotary: str = ""


FAMILIES = {
    "llama": Family("LLaMA 1 to 3, SmolLM2", "grouped queries; llama3 rotary scaling", "halves"),
    "opt": Family("OPT", "learned positions; scales its queries itself"),
    "gpt_neox": Family("GPT-NeoX, Pythia", "rotary on a quarter of the head", "halves"),
    "gpt2": Family("GPT-2", "learned positions; fused projection"),
    "mistral": Family("Mistral 7B", "sliding window", "halves"),
    "mixtral": Family("Mixtral", "mixture of experts; sliding window", "halves"),
    "qwen2": Family("Qwen 1.5 to 2.5", "biases; sliding window on the upper layers", "halves"),
    "qwen3": Family("Qwen 3", "norm on q and k; head dimension of its own", "halves"),
    "qwen3_moe": Family("Qwen 3 MoE", "mixture of experts; norm on q and k", "halves"),
    "gemma": Family("Gemma 1", "head dimension of its own", "halves"),
    "gemma2": Family("Gemma 2", "softcap; alternating windows; scaling of its own", "halves"),
    "gemma3_text": Family("Gemma 3, text only", "norm on q and k; windows; two rotary bases"),
    "gpt_oss": Family("gpt-oss", "attention sinks; alternating windows; experts"),
    "phi": Family("Phi 1 to 2", "partial rotary; parallel blocks", "halves"),
    "phi3": Family("Phi 3 and 4", "fused projection; sliding window", "halves"),
    "stablelm": Family("StableLM", "partial rotary; norm on q and k per head", "halves"),
    "starcoder2": Family("StarCoder 2", "sliding window; biases", "halves"),
    "gpt_bigcode": Family("SantaCoder, StarCoder", "one kv_head; learned positions"),
    "olmo": Family("OLMo", "norm without weights; clipped q, k, v", "halves"),
    "olmo2": Family("OLMo 2", "norm on q and k", "halves"),
    "olmo3": Family("OLMo 3", "norm on q and k; windows on three of four layers"),
    "cohere": Family("Command R", "interleaved rotary; parallel blocks"),
    "cohere2": Family("Command R7B", "windows on three of four layers; layers without rotary"),
    "granite": Family("Granite 3", "scaling of its own", "halves"),
    "smollm3": Family("SmolLM3", "layers without rotary"),
}
"""``model_type`` of the text model's config -> what is recorded. A name is added with a random
configuration in :mod:`h2o_theory.recorder.tiny`; the tests then cover it."""

HALVES = frozenset(name for name, family in FAMILIES.items() if family.rotary == "halves")
"""Families whose rotary embedding can be taken out of queries and keys, or put back elsewhere."""

ALIBI = "it adds a position bias (ALiBi) to its logits"
RELATIVE = "it adds a learned relative position bias to its logits and has an encoder"
ENCODER = "it has an encoder and cross-attention"
BIDIRECTIONAL = "its attention is not causal"
LATENT = "its KV cache holds latent vectors, not the keys and values of each head"
RECURRENT = "some or all of its layers have a recurrent state instead of attention"
OWN_CODE = "it does not take its attention from transformers' interface"

REASONS = {
    ALIBI: "bloom mpt",
    RELATIVE: "t5 mt5 umt5 longt5 switch_transformers pop2piano udop",
    ENCODER: "bart mbart pegasus marian whisper blenderbot m2m_100 nllb_moe led t5gemma t5gemma2 "
    "encoder_decoder vision_encoder_decoder",
    BIDIRECTIONAL: "bert roberta xlm-roberta distilbert albert electra deberta deberta-v2 mpnet "
    "modernbert eurobert nomic_bert xlnet",
    LATENT: "deepseek_v2 deepseek_v3 deepseek_v32 minicpm3 longcat_flash glm4_moe_lite mistral4",
    RECURRENT: "mamba mamba2 falcon_mamba rwkv xlstm recurrent_gemma jamba zamba zamba2 bamba "
    "falcon_h1 qwen3_next qwen3_5 lfm2 nemotron_h granitemoehybrid kimi_linear minimax",
    OWN_CODE: "falcon gpt_neo openai-gpt",
    "its layers see only the keys of a block": "llama4 llama4_text",
    "it subtracts one softmax from another": "diffllama",
    "images see both ways; record its model.language_model instead": "gemma3 paligemma",
}


def reason_against(family):
    """Why a family cannot be recorded, as a clause; empty if nothing is known of it."""
    for reason, families in REASONS.items():
        if family in families.split():
            return reason
    return ""
