"""A KV cache must keep what it held: earlier keys are compared with what was captured."""

import numpy as np

from h2o_theory.errors import RecordingRefused

__all__ = ["ANCHORS", "History"]

ANCHORS = 8
"""Latest earlier keys compared on each call, besides the very first: a cache that beam search
reorders, or that was rolled back, differs in one of them."""


class History:
    """The keys of a few earlier tokens of each layer, on the layer's own device."""

    def __init__(self):
        self._anchors = {}

    def check(self, layer, key, offset, stop):
        """Compare earlier keys with those of the calls before, bit for bit, and keep new ones.

        Parameters
        ----------
        layer : int
        key : torch.Tensor [batch, kv_heads, m, d]
            The key buffer of a call.
        offset : int
            Token in its first column; keys that a sliding cache has dropped are not compared.
        stop : int
            Tokens fed so far, this call's included.

        Raises
        ------
        RecordingRefused
            If a key differs.
        """
        if layer in self._anchors:
            positions, keys = self._anchors[layer]
            at_hand = positions >= offset
            now = key[:, :, positions[at_hand] - offset]
            then = keys[:, :, np.flatnonzero(at_hand)]
            # Padded rows may hold NaN, which differs from itself.
            if not bool(((now == then) | (then != then)).all()):
                raise RecordingRefused(
                    "the KV cache changed keys that are already recorded",
                    where=f"layer {layer}",
                    hint="Record the finished sequence again in one forward pass",
                )
        positions = np.arange(max(offset, stop - ANCHORS), stop)
        if offset == 0 and positions[0] > 0:
            positions = np.concatenate([[0], positions])
        self._anchors[layer] = positions, key[:, :, positions - offset]
