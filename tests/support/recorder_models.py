"""Inputs for tiny random models, and rows as the models themselves report them."""

import copy
from inspect import signature

import numpy as np
import torch
import transformers

from h2o_theory import open_trace, validate
from h2o_theory.recorder.tiny import SHAPES, tiny_config, tiny_model

__all__ = [
    "CACHE",
    "FAMILIES",
    "HEADS",
    "LAYERS",
    "leftovers",
    "own_rows",
    "rounding",
    "tiny_config",
    "tiny_model",
    "tokens",
    "traced_rows",
]

LAYERS, HEADS, VOCABULARY = 3, 4, SHAPES["vocab_size"]
FAMILIES = ("llama", "opt", "gpt_neox")
"""Families that stand for all where the family makes no difference."""
CACHE = "cache"
if CACHE not in signature(transformers.LlamaModel.forward).parameters:
    CACHE = "past_key_values"  # what transformers called the KV cache before renaming it


def tokens(count, seed=0):
    """Token ids [1, count], none of them special."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (1, count), generator=generator)


def own_rows(model, ids, **inputs):
    """Attention [L, H, T, T] that a separate copy of the model reports, with eager attention.

    Of a batch, [L, batch, H, T, T].
    """
    reference = copy.deepcopy(model)
    reference.set_attn_implementation("eager")
    with torch.no_grad():
        outputs = reference(ids, output_attentions=True, use_cache=False, **inputs)
    rows = torch.stack(outputs.attentions).float().numpy()
    return rows[:, 0] if len(ids) == 1 else rows


def rounding(model, ids):
    """How far float32 moves an entry of the model's own rows, against the same in float64.

    Two sums in different orders may each be that far from the exact entry, on opposite sides.
    """
    exact = copy.deepcopy(model).double()
    if hasattr(model.config, "num_experts_per_tok"):
        exact.set_experts_implementation("eager")  # the grouped product knows no float64
    return np.abs(own_rows(model, ids) - own_rows(exact, ids)).max()


def traced_rows(trace, layer):
    """Rows [H, T, T] of one layer recomputed from a trace, query heads in order."""
    return np.concatenate([trace.rows(layer, kv_head) for kv_head in trace.kv_heads(layer)])


def leftovers(folder):
    """Everything in a folder, hidden files included."""
    return sorted(path.name for path in folder.iterdir())


class Letters:
    """A tokenizer of letters."""

    def __call__(self, text, verbose=True):
        return {"input_ids": [3 + ord(letter) % 90 for letter in text]}


LENGTHS = [9, 14, 4]


def padded(side):
    """Token ids [3, 14] and attention mask of three sequences of different lengths."""
    width, sequences = max(LENGTHS), [tokens(n, seed=n)[0] for n in LENGTHS]
    ids = torch.zeros(len(LENGTHS), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        where = slice(width - len(sequence), None) if side == "left" else slice(len(sequence))
        ids[row, where], mask[row, where] = sequence, 1
    return ids, mask, sequences


def check_batch(recording, expected, mask, sequences, accepted=1e-5):
    """Each trace holds its own tokens; its rows are the batch's own without pad rows and keys."""
    assert recording.report.sequences == len(recording.paths) == len(sequences)
    assert recording.report.rows == sum(map(len, sequences))
    for index, (path, sequence) in enumerate(zip(recording.paths, sequences, strict=True)):
        trace, real = open_trace(path), mask[index].bool().numpy()
        assert trace.spec.token_ids == tuple(sequence.tolist())
        assert trace.spec.text == {"sequence": index, "sequences": len(sequences)}
        for layer in trace.layers:
            rows = expected[layer, index][:, real][:, :, real]
            assert np.abs(traced_rows(trace, layer) - rows).max() <= accepted
        assert validate(trace).rows > 0
