"""Reading a trace: any row of any kv_head on demand, O(T d) memory, nothing loaded up front."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from h2o_theory.annotations import FloatArray, PathLike
from h2o_theory.attention import attention_rows
from h2o_theory.errors import BadArgument, OutOfRange
from h2o_theory.trace.foreign import trace_of_rows
from h2o_theory.trace.rows import unpack_rows
from h2o_theory.trace.spec import TraceSpec
from h2o_theory.trace.store import MemoryStore, SegmentStore
from h2o_theory.trace.summary import ranges, summarise
from h2o_theory.trace.writer import TraceWriter

if TYPE_CHECKING:
    from h2o_theory.trace.spec import LayerSpec

__all__ = ["BLOCK_ROWS", "Trace", "open_trace"]

BLOCK_ROWS = 256
"""Rows per block when streaming: the memory of a block is 8 x G x 256 x T bytes."""


def open_trace(path: PathLike) -> Trace:
    """Open a trace folder for reading.

    Parameters
    ----------
    path : path
        The folder that :func:`h2o_theory.record` or ``h2o-theory record`` wrote.

    Returns
    -------
    Trace

    Raises
    ------
    TraceNotFound
        If there is no such folder or it is not a trace.
    UnfinishedTrace
        If the recording was stopped before its end; says how far it got and how to go on.
    CorruptTrace
        If a file is missing, truncated or altered, or the manifest is incomplete. A segment's
        checksum is verified when it is first read.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from h2o_theory import Trace, open_trace
    >>> made = Trace.from_attention(np.tril(np.ones((1, 2, 3, 3))) / [[1], [2], [3]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     open_trace(made.save(folder + "/thirds.trace")).layers
    (0,)
    """
    store = SegmentStore(path)
    spec = TraceSpec.from_json(store.spec_text, Path(path) / "spec.json")
    store.require([layer.layer for layer in spec.layers], spec.tokens)
    return Trace(spec, store, name=Path(path).resolve().name)


class Trace:
    """Recorded attention of one sequence, seen as rows ``A[g, t, :]`` per layer and kv_head.

    Made by :func:`open_trace` or :meth:`from_attention`; the constructor is for the store's use.

    Attributes
    ----------
    spec : TraceSpec
    name : str

    Examples
    --------
    >>> import numpy as np
    >>> from h2o_theory import Trace
    >>> rows = np.tril(np.ones((1, 2, 3, 3))) / [[1], [2], [3]]  # one layer, two heads, T = 3
    >>> trace = Trace.from_attention(rows, kv_heads=1)
    >>> trace.rows(layer=0, kv_head=0).shape
    (2, 3, 3)
    >>> trace.rows(0, 0)[1, 1].tolist()
    [0.5, 0.5, 0.0]
    """

    def __init__(self, spec: TraceSpec, store: SegmentStore | MemoryStore, name: str) -> None:
        self.spec, self.name, self._store = spec, name, store
        self._layers = {layer.layer: layer for layer in spec.layers}

    def __repr__(self):
        model = self.spec.model.get("id", "unknown model")
        return (
            f"<Trace {self.name}: {model}, {self.tokens} tokens, layers {list(self._layers)}, "
            f"{self.spec.content} in {self.spec.dtype}>"
        )

    @property
    def tokens(self) -> int:
        """Length T of the sequence."""
        return self.spec.tokens

    @property
    def layers(self) -> tuple[int, ...]:
        """The recorded layer numbers, ascending."""
        return tuple(sorted(self._layers))

    @property
    def trace_id(self) -> str:
        """The first 12 hex digits of a hash of the recorded values."""
        return self._store.content_hash()[:12]

    def layer(self, layer: int) -> LayerSpec:
        """The :class:`LayerSpec` of a recorded layer; raises OutOfRange otherwise."""
        try:
            layer = index(layer)
        except TypeError:
            raise BadArgument("a layer must be a whole number", got=repr(layer)) from None
        if layer not in self._layers:
            raise OutOfRange(
                "the trace has no such layer",
                where=self.name,
                got=f"layer {layer}",
                expected=f"one of {ranges(self.layers)}",
            )
        return self._layers[layer]

    def kv_heads(self, layer: int) -> tuple[int, ...]:
        """The recorded kv_heads of a layer by the model's own numbers, ascending."""
        return tuple(sorted(self.layer(layer).kv_head_ids))

    def has_values(self, layer: int) -> bool:
        """Whether the layer's values V were recorded, so that output errors can be computed."""
        return "v" in self._store.names(self.layer(layer).layer)

    def tensor(self, layer: int, kind: str) -> np.ndarray:
        """A whole stored tensor, all heads; kind is one of ``q, k, v, p, lo, hi``."""
        heads = None if kind in ("lo", "hi") else slice(None)
        return self._store.read(self.layer(layer).layer, kind, heads, 0, self.tokens)

    def parts(self) -> Iterator[tuple[str, Sequence[int], int, int, dict[str, Any]]]:
        """Segments as (label, layers, start, stop, {tensor: (shape, dtype)}); nothing is read."""
        return self._store.parts()

    def verify_segments(self) -> int:
        """Verify every segment's checksum now; returns how many there are (0 in memory)."""
        return self._store.verify_all()

    def _head(self, layer, kv_head):
        """The spec of a layer and the places of a kv_head and of its query heads in it."""
        spec = self.layer(layer)
        if kv_head not in spec.kv_head_ids:
            raise OutOfRange(
                "the trace holds no such kv_head",
                where=f"{self.name}, layer {layer}",
                got=kv_head,
                expected=f"one of {ranges(self.kv_heads(layer))}",
            )
        place = spec.kv_head_ids.index(kv_head)
        return spec, slice(place, place + 1), slice(place * spec.group, (place + 1) * spec.group)

    def queries(
        self, layer: int, kv_head: int, start: int = 0, stop: int | None = None
    ) -> np.ndarray:
        """Queries [G, n, head_dim] of the kv_head's group, after rotary embedding."""
        _, _, q_heads = self._head(layer, kv_head)
        return self._store.read(layer, "q", q_heads, start, self._stop(stop))

    def keys(self, layer: int, kv_head: int, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Keys [n, head_dim], after rotary embedding."""
        _, head, _ = self._head(layer, kv_head)
        return self._store.read(layer, "k", head, start, self._stop(stop))[0]

    def values(
        self, layer: int, kv_head: int, start: int = 0, stop: int | None = None
    ) -> np.ndarray:
        """Values [n, value_dim]; raises BadArgument if the trace does not hold them."""
        _, head, _ = self._head(layer, kv_head)
        if not self.has_values(layer):
            raise BadArgument(
                "the trace holds no values",
                where=f"{self.name}, layer {layer}",
                hint="Record with store='qkv' (--store qkv), or pass values= to from_attention",
            )
        return self._store.read(layer, "v", head, start, self._stop(stop))[0]

    def _stop(self, stop):
        return self.tokens if stop is None else stop

    def rows(self, layer: int, kv_head: int, start: int = 0, stop: int | None = None) -> FloatArray:
        """Attention rows ``start .. stop`` of the query heads that share a kv_head.

        Returns
        -------
        array [G, stop - start, T], float64
            ``A[g, t, j]``, zero for keys the row cannot see; each row sums to one, or, in a layer
            with attention sinks, to one less the sink's share.

        Raises
        ------
        OutOfRange
            For a layer, kv_head or row that does not exist.
        CorruptTrace
            If a segment's checksum is wrong.
        """
        (spec, _, q_heads), stop = self._head(layer, kv_head), self._stop(stop)
        if not 0 <= start <= stop <= self.tokens:
            raise OutOfRange(
                "no such rows",
                where=self.name,
                got=f"{start} to {stop}",
                expected=f"within 0 to {self.tokens}",
            )
        if self.spec.content == "attention":
            rows = self.stored_rows(layer, kv_head, start, stop)
            if spec.sinks is None:
                rows /= rows.sum(axis=-1, keepdims=True)
            return rows
        lo = self._store.read(layer, "lo", None, start, stop)
        hi = self._store.read(layer, "hi", None, start, stop)
        return attention_rows(
            self.queries(layer, kv_head, start, stop),
            self.keys(layer, kv_head),
            lo,
            hi,
            spec.scaling,
            spec.softcap,
            None if spec.sinks is None else spec.sinks[q_heads],
        )

    def stored_rows(
        self, layer: int, kv_head: int, start: int = 0, stop: int | None = None
    ) -> FloatArray:
        """Rows of a trace of attention matrices as they are stored, not rescaled; float64.

        Shape and errors are those of :meth:`rows`; BadArgument if the trace holds Q and K.
        """
        (_, _, q_heads), stop = self._head(layer, kv_head), self._stop(stop)
        if self.spec.content != "attention":
            raise BadArgument("the trace stores no rows but Q and K", where=self.name)
        packed = self._store.read(layer, "p", q_heads, start, stop)
        return unpack_rows(packed, start, stop, self.tokens)

    def blocks(
        self, layer: int, kv_head: int, block_rows: int = BLOCK_ROWS
    ) -> Iterator[tuple[int, FloatArray]]:
        """Yield ``(start, rows)`` for consecutive blocks of rows, O(block_rows x T) memory."""
        for start in range(0, self.tokens, block_rows):
            yield start, self.rows(layer, kv_head, start, min(start + block_rows, self.tokens))

    @classmethod
    def from_attention(
        cls,
        attention: ArrayLike | Sequence[ArrayLike],
        *,
        kv_heads: int | Sequence[int] | None = None,
        values: ArrayLike | None = None,
        layers: Sequence[int] | None = None,
        name: str = "attention",
        model: dict[str, Any] | None = None,
    ) -> Self:
        """A trace from attention matrices that someone already has.

        Parameters
        ----------
        attention : array [L, H, T, T], or a sequence of [H, T, T] or [1, H, T, T]
            Post-softmax, causal; a tuple as ``output_attentions`` gives it will do. Checked by
            :func:`attention_layers` and kept as it is; rows are rescaled to sum to one in
            float64 when they are read.
        kv_heads : int or list of int, optional
            Number of kv_heads that the H query heads are grouped into, for all layers or for
            each; H by default.
        values : array [L, kv_heads, T, dv], optional
            Enables the output error; stored in the dtype of the attention.
        layers : list of int, optional
            Layer numbers; 0 .. L-1 by default.
        name : str
        model : dict, optional
            Provenance, ``{"id": ...}``.

        Raises
        ------
        InvalidAttention
            For NaN, negative, non-causal entries or rows that do not sum to one.
        BadArgument
            For shapes that do not fit together.
        """
        spec, tensors = trace_of_rows(attention, kv_heads, values, layers, model or {})
        numbers = [layer.layer for layer in spec.layers]
        return cls(spec, MemoryStore(tensors, numbers, spec.tokens), name)

    def save(self, path: PathLike, *, overwrite: bool = False) -> Path:
        """Write to a folder, one segment a layer, beside and renamed; returns the path."""
        with TraceWriter(path, plan=self.spec, overwrite=overwrite) as writer:
            for layer in self.layers:
                tensors, dtypes = {}, {}
                for kind in sorted(self._store.names(layer)):
                    name = f"{layer}.{kind}"
                    tensors[name] = self.tensor(layer, kind)
                    if self.spec.dtype == "bfloat16" and kind in "qkvp":
                        tensors[name] = (tensors[name].view(np.uint32) >> 16).astype(np.uint16)
                        dtypes[name] = "bfloat16"
                writer.add_segment(
                    tensors, start=0, stop=self.tokens, layers=[layer], dtypes=dtypes
                )
            return writer.commit(self.spec)

    def info(self) -> dict[str, Any]:
        """A flat dictionary of what the trace holds, in the order a person would read it."""
        return summarise(self)
