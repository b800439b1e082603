"""The tensors of a trace that is made from arrays and not on disk."""

import hashlib

import numpy as np

from h2o_theory.trace.packing import packed_range

__all__ = ["MemoryStore"]


class MemoryStore:
    """Tensors held in memory, named as in a segment, for traces made from arrays."""

    def __init__(self, tensors, layers, tokens):
        self._tensors, self._layers, self._tokens = tensors, layers, tokens

    def names(self, layer):
        """The tensor kinds (``q``, ``k``, ``v``, ``p``, ``lo``, ``hi``) of a layer."""
        return {name.split(".")[1] for name in self._tensors if name.split(".")[0] == str(layer)}

    def read(self, layer, kind, heads, start, stop):
        """Tokens ``start .. stop`` of ``heads`` (a slice, or None for a tensor without heads)."""
        tensor = self._tensors[f"{layer}.{kind}"]
        if kind == "p":
            start, stop = packed_range(start, stop)
        return tensor[start:stop] if heads is None else tensor[heads, start:stop]

    def parts(self):
        """One part: everything, see :meth:`SegmentStore.parts`."""
        found = {name: (array.shape, array.dtype.name) for name, array in self._tensors.items()}
        yield "memory", self._layers, 0, self._tokens, found

    def verify_all(self):
        """There are no files to verify."""
        return 0

    def content_hash(self):
        """SHA-256 over names, shapes and bytes."""
        digest = hashlib.sha256()
        for name in sorted(self._tensors):
            array = np.ascontiguousarray(self._tensors[name])
            digest.update(f"{name}{array.shape}{array.dtype}".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()
