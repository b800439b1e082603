"""Captured rows gathered into segments of a useful size, which a thread writes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

    from h2o_theory.trace.writer import TraceWriter

__all__ = ["SEGMENT_BYTES", "BackgroundWriter", "SegmentBuffer", "as_numpy", "to_storage"]

SEGMENT_BYTES = 8 << 20
"""A segment is written once this much is buffered: small enough that writing overlaps with the
layers still to come, large enough that a long recording makes hundreds of files, not thousands."""


@dataclass(frozen=True)
class Rows:
    """Rows ``start .. stop`` of one layer: arrays [heads, n, d] by kind, ``lo`` and ``hi`` [n]."""

    start: int
    stop: int
    arrays: dict[str, np.ndarray]


class SegmentBuffer:
    """Rows of every layer until they make a segment.

    Parameters
    ----------
    emit : callable (tensors, start, stop, layers, dtypes)
        Where finished segments go.
    dtype : str
        Storage dtype of the tensors other than ``lo`` and ``hi``.
    """

    def __init__(self, emit: Callable[..., None], dtype: str) -> None:
        self._emit, self._dtype = emit, dtype
        self._rows, self._bytes = {}, 0

    def add(self, layer: int, start: int, stop: int, arrays: dict[str, np.ndarray]) -> None:
        """Append rows of a layer, which follow those added before; flush when there is enough."""
        self._rows.setdefault(layer, []).append(Rows(start, stop, arrays))
        self._bytes += sum(array.nbytes for array in arrays.values())
        if self._bytes >= SEGMENT_BYTES:
            self.flush()

    def flush(self) -> None:
        """Queue everything buffered: one segment for all layers with the same token range."""
        ranges = {}
        for layer, parts in self._rows.items():
            ranges.setdefault((parts[0].start, parts[-1].stop), []).append(layer)
        for (start, stop), layers in ranges.items():
            tensors, dtypes = {}, {}
            for layer in layers:
                for kind, array in _joined(self._rows[layer]).items():
                    tensors[f"{layer}.{kind}"] = array
                    if kind not in ("lo", "hi"):
                        dtypes[f"{layer}.{kind}"] = self._dtype
            self._emit(tensors, start=start, stop=stop, layers=layers, dtypes=dtypes)
        self._rows, self._bytes = {}, 0


def to_storage(
    tensor: torch.Tensor, dtype: str, device: str | torch.device = "cpu"
) -> torch.Tensor:
    """A contiguous copy in the storage dtype, independent of the model's buffers."""
    import torch

    return tensor.to(
        device=device,
        dtype=getattr(torch, dtype),
        copy=True,
        memory_format=torch.contiguous_format,
    )


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The memory of a CPU tensor as numpy sees it; bfloat16 as its 16 raw bits."""
    import torch

    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy()


def _joined(parts):
    """Arrays of consecutive rows, joined along the token axis."""
    if len(parts) == 1:
        return parts[0].arrays
    return {
        kind: np.concatenate(
            [part.arrays[kind] for part in parts], axis=0 if kind in ("lo", "hi") else 1
        )
        for kind in parts[0].arrays
    }


QUEUE = 2
"""Segments that may wait; a slow disk then holds the model back instead of filling memory."""


class BackgroundWriter:
    """Hands segments to their :class:`~h2o_theory.trace.TraceWriter` in order, one at a time.

    A failed write surfaces at the next :meth:`add` or at :meth:`finish`. Leaving the context
    waits for the segment being written and drops the others.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="h2o-theory-writer")
        self._waiting = deque()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._pool.shutdown(wait=True, cancel_futures=True)

    def add(self, writer: TraceWriter, tensors: dict[str, np.ndarray], **details: Any) -> None:
        """Queue one segment for a writer, with the arguments of its ``add_segment``."""
        while len(self._waiting) >= QUEUE:
            self._collect()
        self._waiting.append(self._pool.submit(writer.add_segment, tensors, **details))

    def finish(self) -> None:
        """Wait until every queued segment is on disk."""
        while self._waiting:
            self._collect()

    def _collect(self):
        self._waiting.popleft().result()
