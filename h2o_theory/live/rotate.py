"""Moving a key along the sequence after its rotary embedding."""

import torch

from h2o_theory.errors import UnsupportedModel

__all__ = ["key_rotation", "rotate"]

HALVES = ("llama", "mistral", "qwen2", "qwen3", "gpt_neox")
"""Families whose rotary embedding pairs channel i with channel i + r/2 of the first r."""

STATIC = ("default", "linear", "llama3")
"""Kinds of rotary embedding whose frequencies do not depend on the length of the sequence."""


def key_rotation(model):
    r"""The function (keys, delta) that rotates keys of this model as if they stood delta later.

    A rotary embedding multiplies pairs of channels by rotations :math:`R(p \theta_i)` at position
    p; rotations compose, so :math:`R(\delta \theta_i)` moves a key that is already embedded.

    Raises
    ------
    UnsupportedModel
        If positions do not enter by a rotary embedding of a known layout and fixed frequencies.
    """
    embedding = getattr(model.base_model, "rotary_emb", None)
    kind = getattr(embedding, "rope_type", None)
    frequencies = getattr(embedding, "inv_freq", None)
    if model.config.model_type not in HALVES or kind not in STATIC or frequencies is None:
        raise UnsupportedModel(
            "keys cannot be moved to other positions in this model",
            where=type(model).__name__,
            got=f"{model.config.model_type}, rotary embedding: {kind or 'none'}",
            expected=f"{' or '.join(HALVES)} with a rotary embedding of fixed frequencies",
            hint="Use positions='original'",
        )
    return lambda keys, delta: rotate(keys, delta, frequencies)


def rotate(keys, delta, frequencies):
    """Keys [h, m, d] moved by ``delta`` [m]; frequencies [r/2] belong to the first r channels."""
    angle = delta.to(frequencies.device).double()[:, None] * frequencies.double()
    cos, sin = angle.cos().float(), angle.sin().float()
    first, second, rest = keys.float().split(
        [len(frequencies), len(frequencies), keys.shape[-1] - 2 * len(frequencies)], dim=-1
    )
    moved = [first * cos - second * sin, second * cos + first * sin, rest]
    return torch.cat(moved, dim=-1)
