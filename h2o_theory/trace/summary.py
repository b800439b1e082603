"""What a trace holds, said in a few lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from h2o_theory.trace.size import packed_bytes, predict_bytes

if TYPE_CHECKING:
    from h2o_theory.trace.reader import Trace

__all__ = ["ranges", "summarise"]


def summarise(trace: Trace) -> dict[str, Any]:
    """A flat dictionary for :meth:`Trace.info`.

    Where layers differ, a value is text that says which layers have it. Sizes are those of the
    tensors, in bytes per token; ``packed_bytes_per_token`` is what the same rows would take as
    packed lower triangles in the same dtype, which grows with T.
    """
    spec = trace.spec
    specs = [trace.layer(layer) for layer in trace.layers]

    def shared(value):
        """The value of all layers, or the values with their layers."""
        layers = {}
        for layer in specs:
            layers.setdefault(value(layer), []).append(layer.layer)
        if len(layers) == 1:
            return next(iter(layers))
        return "; ".join(f"{value} in {ranges(where)}" for value, where in layers.items())

    def kv_heads(layer):
        """How many, or which of the model's."""
        if layer.kv_head_ids == tuple(range(layer.kv_heads)):
            return layer.kv_heads
        return f"{layer.kv_heads} ({ranges(sorted(layer.kv_head_ids))})"

    size, packed = predict_bytes(spec), packed_bytes(spec)
    return {
        "trace": trace.name,
        "trace_id": trace.trace_id,
        "model": spec.model.get("id", "unknown"),
        "revision": spec.model.get("revision") or "unknown",
        "family": spec.model.get("family", "unknown"),
        "computed_by": spec.model.get("attention", "unknown"),
        "text": spec.text.get("name", "unknown"),
        "tokens": trace.tokens,
        "prompt_length": spec.prompt_length,
        "generation": _generation(spec),
        "layers": ranges(trace.layers),
        "q_heads": shared(lambda layer: layer.q_heads),
        "kv_heads": shared(kv_heads),
        "head_dim": shared(lambda layer: layer.head_dim),
        "value_dim": shared(lambda layer: layer.value_dim),
        "softcap": shared(lambda layer: layer.softcap or "none"),
        "sliding_window": shared(lambda layer: layer.sliding_window or "none"),
        "sinks": shared(lambda layer: "none" if layer.sinks is None else "yes"),
        "content": spec.content,
        "dtype": spec.dtype,
        "token_ids": spec.token_ids is not None,
        "token_strings": spec.token_strings is not None,
        "bytes": size,
        "bytes_per_token": round(size / trace.tokens, 1),
        "packed_bytes_per_token": round(packed / trace.tokens, 1),
        "share_of_packed": round(size / packed, 4),
    }


def _generation(spec):
    """The method; of generated tokens that the recording says nothing about, just that."""
    generated = spec.prompt_length is not None and spec.prompt_length < spec.tokens
    return spec.generation.get("method", "not stated" if generated else "none")


def ranges(numbers: Iterable[int]) -> str:
    """``0-3, 7`` for 0, 1, 2, 3, 7."""
    runs = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)
