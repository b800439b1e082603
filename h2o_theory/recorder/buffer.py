"""Captured rows gathered into segments of a useful size."""

from dataclasses import dataclass

import numpy as np

__all__ = ["SEGMENT_BYTES", "SegmentBuffer", "as_numpy", "to_storage"]

SEGMENT_BYTES = 8 << 20
"""A segment is written once this much is buffered: small enough that writing overlaps with the
layers still to come, large enough that a long recording makes hundreds of files, not thousands."""


@dataclass(frozen=True)
class Chunk:
    """Rows ``start .. stop`` of one layer: arrays [heads, n, d] by kind, ``lo`` and ``hi`` [n]."""

    start: int
    stop: int
    arrays: dict


class SegmentBuffer:
    """Chunks of every layer until they make a segment.

    Parameters
    ----------
    emit : callable (tensors, start, stop, layers, dtypes)
        Where finished segments go.
    dtype : str
        Storage dtype of the tensors other than ``lo`` and ``hi``.
    """

    def __init__(self, emit, dtype):
        self._emit, self._dtype = emit, dtype
        self._chunks, self._bytes = {}, 0

    def add(self, layer, start, stop, arrays):
        """Append rows of a layer, which follow those added before; flush when there is enough."""
        self._chunks.setdefault(layer, []).append(Chunk(start, stop, arrays))
        self._bytes += sum(array.nbytes for array in arrays.values())
        if self._bytes >= SEGMENT_BYTES:
            self.flush()

    def flush(self):
        """Queue everything buffered: one segment for all layers with the same token range."""
        ranges = {}
        for layer, chunks in self._chunks.items():
            ranges.setdefault((chunks[0].start, chunks[-1].stop), []).append(layer)
        for (start, stop), layers in ranges.items():
            tensors, dtypes = {}, {}
            for layer in layers:
                for kind, array in _joined(self._chunks[layer]).items():
                    tensors[f"{layer}.{kind}"] = array
                    if kind not in ("lo", "hi"):
                        dtypes[f"{layer}.{kind}"] = self._dtype
            self._emit(tensors, start=start, stop=stop, layers=layers, dtypes=dtypes)
        self._chunks, self._bytes = {}, 0


def to_storage(tensor, dtype, device="cpu"):
    """A contiguous copy in the storage dtype, independent of the model's buffers."""
    import torch

    return tensor.to(
        device=device,
        dtype=getattr(torch, dtype),
        copy=True,
        memory_format=torch.contiguous_format,
    )


def as_numpy(tensor):
    """The memory of a CPU tensor as numpy sees it; bfloat16 as its 16 raw bits."""
    import torch

    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy()


def _joined(chunks):
    """Arrays of consecutive chunks, joined along the token axis."""
    if len(chunks) == 1:
        return chunks[0].arrays
    return {
        kind: np.concatenate(
            [chunk.arrays[kind] for chunk in chunks], axis=0 if kind in ("lo", "hi") else 1
        )
        for kind in chunks[0].arrays
    }
