"""Moving a key along the sequence after its rotary embedding."""

import torch

from h2o_theory.errors import UnsupportedModel
from h2o_theory.families import HALVES

__all__ = ["KeyRotation", "key_rotation"]

STATIC = ("default", "linear", "llama3")
"""Kinds of rotary embedding whose frequencies do not depend on the length of the sequence."""


class KeyRotation:
    r"""Rotates keys or queries as if they stood elsewhere.

    A rotary embedding multiplies pairs of channels by rotations :math:`R(p \theta_i)` at position
    p; rotations compose, so :math:`R(\delta \theta_i)` moves a key that is already embedded.

    Parameters
    ----------
    frequencies : torch.Tensor [r/2]
        Of the pairs (i, i + r/2) of the first r channels; the other channels stay.
    """

    def __init__(self, frequencies):
        self.frequencies = frequencies
        self._table = None

    def __call__(self, vectors, delta):
        """Vectors [..., m, d], moved by ``delta``, int array [m]; float32."""
        device, half = vectors.device, len(self.frequencies)
        cos, sin = (part.to(device) for part in self._turns(torch.from_numpy(delta)))
        first, second, rest = vectors.float().split(
            [half, half, vectors.shape[-1] - 2 * half], dim=-1
        )
        moved = [first * cos - second * sin, second * cos + first * sin, rest]
        return torch.cat(moved, dim=-1)

    def table(self, distances):
        """Cosines and sines of at least the distances 0, 1, ..., float32 [n, r/2] each."""
        if self._table is None or len(self._table[0]) < distances:
            found = self._turns(torch.arange(2 * distances))
            self._table = tuple(part.numpy() for part in found)
        return self._table

    def _turns(self, delta):
        angle = delta.double()[:, None] * self.frequencies.double().cpu()
        return angle.cos().float(), angle.sin().float()


def key_rotation(model):
    """The :class:`KeyRotation` of a model.

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
            expected=f"{' or '.join(sorted(HALVES))} with a rotary embedding of fixed frequencies",
            hint="Use positions='original'",
        )
    return KeyRotation(frequencies)
