"""Attention matrices that someone already has, brought into the form of a trace."""

from collections.abc import Iterator, Sequence
from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from h2o_theory.errors import BadArgument, InvalidAttention
from h2o_theory.trace.rows import ROW_SUM_TOLERANCE, largest_row_error, pack_rows
from h2o_theory.trace.spec import LayerSpec, TraceSpec

__all__ = [
    "attention_layers",
    "kv_heads_by_layer",
    "per_layer",
    "row_blocks",
    "rows_spec",
    "trace_of_rows",
]

BLOCK_BYTES = 32 << 20
"""Rows of a layer looked at together take about this much in float64."""


def attention_layers(attention: ArrayLike | Sequence[ArrayLike]) -> list[np.ndarray]:
    """Refuse attention that is not, per layer, a stack of causal, row-stochastic matrices.

    Parameters
    ----------
    attention : array [L, H, T, T] or [L, 1, H, T, T], or a sequence of [H, T, T] or [1, H, T, T]
        float16, float32 or float64, post-softmax.

    Returns
    -------
    list of array [H, T, T], one per layer, in their own dtype

    Raises
    ------
    InvalidAttention
        Names the first offending layer, head and row.
    """
    layers = [_one_sequence(array) for array in _layers(attention)]
    shapes = {(array.shape[1:], array.dtype.name) for array in layers}
    if len(shapes) != 1 or any(0 in array.shape for array in layers):
        raise InvalidAttention(
            "attention has the wrong shape, or layers differ in length or dtype",
            got=" and ".join(f"{array.shape} {array.dtype}" for array in layers[:2]) or "nothing",
            expected="[layers, heads, T, T] with T >= 1",
        )
    for layer, array in enumerate(layers):
        for start, rows in row_blocks(array):
            largest_row_error(rows, start, layer=layer, dtype=array.dtype.name)
    return layers


def _layers(attention):
    try:
        if isinstance(attention, (list, tuple)):
            return [np.asarray(array) for array in attention]
        array = np.asarray(attention)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidAttention(
            "attention cannot be read as numpy arrays",
            got=error,
            hint="Convert tensors first: tensor.detach().cpu().float().numpy()",
        ) from None
    if array.ndim not in (4, 5):
        raise InvalidAttention(
            "attention has the wrong shape", got=array.shape, expected="[layers, heads, T, T]"
        )
    return list(array)


def _one_sequence(array):
    """One layer as [H, T, T]."""
    if array.ndim == 4 and array.shape[0] == 1:
        array = array[0]
    if array.ndim == 4:
        raise InvalidAttention(
            "attention of several sequences; a trace holds one, so the shape does not fit",
            got=array.shape,
            expected="[layers, heads, T, T]",
            hint="Choose one, as in [layer[b] for layer in attention]",
        )
    if array.ndim != 3 or array.shape[1] != array.shape[2]:
        raise InvalidAttention(
            "attention has the wrong shape", got=array.shape, expected="[layers, heads, T, T]"
        )
    if array.dtype.name not in ROW_SUM_TOLERANCE:
        raise InvalidAttention(
            "attention has the wrong dtype",
            got=array.dtype,
            expected="float16, float32 or float64",
        )
    return array


def row_blocks(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield ``(start, rows)``: [H, T, T] in blocks [H, n, T] of bounded size, native byte order."""
    q_heads, tokens, _ = array.shape
    count = max(1, BLOCK_BYTES // (8 * q_heads * tokens))
    for start in range(0, tokens, count):
        rows = array[:, start : start + count]
        yield start, np.asarray(rows, dtype=rows.dtype.newbyteorder("="))


def trace_of_rows(
    attention: ArrayLike | Sequence[ArrayLike],
    kv_heads: int | Sequence[int] | None,
    values: ArrayLike | None,
    layers: Sequence[int] | None,
    model: dict[str, Any],
) -> tuple[TraceSpec, dict[str, np.ndarray]]:
    """Spec and tensors of a trace in memory; the parameters are those of ``from_attention``.

    Raises
    ------
    InvalidAttention, BadArgument
    """
    arrays = attention_layers(attention)
    tokens, dtype = arrays[0].shape[1], arrays[0].dtype.name
    q_heads = [array.shape[0] for array in arrays]
    counts = kv_heads_by_layer(q_heads, kv_heads)
    layers = list(range(len(arrays))) if layers is None else [int(layer) for layer in layers]
    if len(layers) != len(arrays) or len(set(layers)) != len(arrays):
        raise BadArgument(
            f"layers must be {len(arrays)} distinct numbers, one per layer", got=layers
        )
    tensors = {}
    for layer, array in zip(layers, arrays, strict=True):
        blocks = [pack_rows(rows, start) for start, rows in row_blocks(array)]
        tensors[f"{layer}.p"] = np.concatenate(blocks, axis=1)
    value_dim = 0
    if values is not None:
        values = np.asarray(values, dtype=dtype)
        value_dim = values.shape[-1] if values.ndim == 4 else 0
        expected = {(len(arrays), count, tokens, value_dim) for count in counts}
        if not value_dim or {values.shape} != expected:
            raise BadArgument(
                f"values must have the shape ({len(arrays)}, {counts[0]}, {tokens}, dv)",
                got=values.shape,
            )
        tensors |= {f"{layer}.v": part for layer, part in zip(layers, values, strict=True)}
    spec = rows_spec(tokens, dtype, layers, q_heads, counts, value_dim=value_dim, model=model)
    return spec, tensors


def kv_heads_by_layer(q_heads: Sequence[int], kv_heads: int | Sequence[int] | None) -> list[int]:
    """The number of kv_heads of each layer.

    Parameters
    ----------
    q_heads : list of int
        Query heads of each layer.
    kv_heads : int, list of int or None
        For all layers, for each, or as many as there are query heads.

    Raises
    ------
    BadArgument
        If the numbers do not fit the layers, or query heads do not divide into kv_heads.
    """
    counts = per_layer(q_heads if kv_heads is None else kv_heads, len(q_heads), "kv_heads")
    for heads, count in zip(q_heads, counts, strict=True):
        if count < 1 or heads % count:
            raise BadArgument(
                "kv_heads must divide the query heads of each layer",
                got=f"{count} for {heads} query heads",
            )
    return counts


def per_layer(numbers: int | Sequence[int], layers: int, where: str) -> list[int]:
    """A number for each of ``layers`` layers, from one for all or one for each.

    Raises
    ------
    BadArgument
        With ``where``, if they are no integers or not as many as layers.
    """
    try:
        if hasattr(numbers, "__index__"):
            return [index(numbers)] * layers
        numbers = [index(number) for number in numbers]
    except TypeError:
        raise BadArgument(
            f"{where} must be a whole number, or one per layer", got=repr(numbers)
        ) from None
    if len(numbers) != layers:
        raise BadArgument(
            f"{where} must be one number, or one for each of {layers} layers",
            got=f"{len(numbers)} numbers",
        )
    return numbers


def rows_spec(
    tokens: int,
    dtype: str,
    layers: Sequence[int],
    q_heads: Sequence[int],
    kv_heads: Sequence[int],
    *,
    value_dim: int = 0,
    sinks: bool = False,
    **details: Any,
) -> TraceSpec:
    """The spec of a trace of packed rows; ``q_heads`` and ``kv_heads`` have a number per layer."""
    specs = [
        LayerSpec(layer, heads, count, 0, value_dim, 1.0, sinks=() if sinks else None)
        for layer, heads, count in zip(layers, q_heads, kv_heads, strict=True)
    ]
    return TraceSpec(
        tokens=tokens,
        layers=tuple(specs),
        content="attention",
        dtype=dtype,
        prompt_length=tokens,
        **details,
    )
