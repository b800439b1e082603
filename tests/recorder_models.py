"""Tiny random models of the tested families, and rows as the models themselves report them."""

import copy
from inspect import signature

import numpy as np
import torch
import transformers

LAYERS, HIDDEN, HEADS, VOCABULARY = 3, 64, 4, 97
FAMILIES = ("llama", "opt", "gpt_neox")
CACHE = "cache"
if CACHE not in signature(transformers.LlamaModel.forward).parameters:
    CACHE = "past_key_values"  # what transformers called the KV cache before renaming it
SHARED = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "max_position_embeddings": 128,
    "initializer_range": 0.25,  # sharp rows: uniform attention would hide most mistakes
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def tiny_config(family, **changes):
    """A configuration small enough to run in milliseconds; LLaMA with two queries per kv_head."""
    if family == "llama":
        options = {**SHARED, "num_key_value_heads": 2, "intermediate_size": 96, **changes}
        return transformers.LlamaConfig(**options)
    if family == "opt":
        options = {**SHARED, "ffn_dim": 96, "word_embed_proj_dim": HIDDEN, **changes}
        options["init_std"] = options.pop("initializer_range")
        return transformers.OPTConfig(**options)
    return transformers.GPTNeoXConfig(**{**SHARED, "intermediate_size": 96, **changes})


def tiny_model(family, *, attention="sdpa", dtype="float32", **changes):
    """A random model in evaluation mode, the same one each time."""
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(
        tiny_config(family, **changes), attn_implementation=attention
    )
    return model.to(getattr(torch, dtype)).eval()


def tokens(count, seed=0):
    """Token ids [1, count], none of them special."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (1, count), generator=generator)


def own_rows(model, ids):
    """Attention [L, H, T, T] that a separate copy of the model reports, with eager attention."""
    reference = copy.deepcopy(model)
    reference.set_attn_implementation("eager")
    with torch.no_grad():
        attentions = reference(ids, output_attentions=True, use_cache=False).attentions
    return torch.cat(attentions).float().numpy()


def traced_rows(trace, layer):
    """Rows [H, T, T] of one layer recomputed from a trace, query heads in order."""
    return np.concatenate([trace.rows(layer, kv_head) for kv_head in trace.kv_heads(layer)])


def leftovers(folder):
    """Everything in a folder, hidden files included."""
    return sorted(path.name for path in folder.iterdir())
