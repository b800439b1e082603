"""Checks of attention matrices on import, and of a whole trace on request."""

from dataclasses import dataclass

import numpy as np

from h2o_theory.errors import CorruptTrace, InvalidAttention

__all__ = ["ROW_SUM_TOLERANCE", "ValidationReport", "check_attention", "validate"]

ROW_SUM_TOLERANCE = {"float64": 1e-6, "float32": 1e-4, "float16": 5e-3, "bfloat16": 2e-2}
"""How far the sum of an imported row may be from one, by dtype: rounding, not more."""


def check_attention(attention):
    """Refuse attention that is not a stack of causal, row-stochastic matrices.

    Parameters
    ----------
    attention : array [L, H, T, T], float16, float32 or float64

    Returns
    -------
    array [L, H, T, T], in its own dtype

    Raises
    ------
    InvalidAttention
        Names the first offending layer, head and row.
    """
    attention = np.asarray(attention)
    if attention.ndim != 4 or attention.shape[2] != attention.shape[3] or 0 in attention.shape:
        raise InvalidAttention(
            "attention has the wrong shape",
            got=attention.shape,
            expected="[layers, heads, T, T] with T >= 1",
        )
    if attention.dtype.name not in ROW_SUM_TOLERANCE:
        raise InvalidAttention(
            "attention has the wrong dtype",
            got=attention.dtype,
            expected=" or ".join(ROW_SUM_TOLERANCE),
        )
    above = np.triu(np.ones(attention.shape[2:], dtype=bool), k=1)
    tolerance = ROW_SUM_TOLERANCE[attention.dtype.name]
    for layer, heads in enumerate(attention):
        _refuse(layer, ~np.isfinite(heads), heads, "NaN or infinite attention", "finite numbers")
        _refuse(layer, heads < 0, heads, "negative attention", "probabilities, after the softmax")
        future = (heads != 0) & above
        _refuse(layer, future, heads, "attention to the future", "zeros above the diagonal")
        sums = heads.sum(axis=-1, dtype=np.float64)
        _refuse(
            layer,
            np.abs(sums - 1) > tolerance,
            sums,
            "a row does not sum to one",
            f"1 within {tolerance:g} for {attention.dtype}",
        )
    return attention


def _refuse(layer, bad, numbers, what, expected):
    if bad.any():
        index = np.argwhere(bad)[0]
        place = ", ".join(
            f"{name} {i}" for name, i in zip(("head", "row", "key"), index, strict=False)
        )
        raise InvalidAttention(
            what,
            where=f"layer {layer}, {place}",
            got=f"{numbers[tuple(index)]:g}",
            expected=expected,
        )


@dataclass(frozen=True)
class ValidationReport:
    """What :func:`validate` looked at; it raises rather than report a fault.

    Attributes
    ----------
    segments, heads, rows : int
        Segments whose checksum was verified, kv_heads and query rows read.
    worst_row_sum_error : float
        Largest distance of a row's sum from one.
    """

    segments: int
    heads: int
    rows: int
    worst_row_sum_error: float


def validate(trace, progress=None):
    """Read a whole trace and check checksums, shapes, gaps, finite values and row sums.

    Parameters
    ----------
    trace : Trace
    progress : callable (done, total, label), optional

    Returns
    -------
    ValidationReport

    Raises
    ------
    CorruptTrace
        With the file, layer and kv_head of the first fault.

    Notes
    -----
    O(L H T^2) time, one block of rows in memory.
    """
    segments = trace.verify_segments()
    heads, rows, worst = 0, 0, 0.0
    for done, layer in enumerate(trace.layers):
        _check_shapes(trace, layer)
        sinks = trace.layer(layer).sinks is not None
        packed = trace.spec.content == "attention"
        accepted = ROW_SUM_TOLERANCE[trace.spec.dtype] if packed and sinks else 1e-9
        for kv_head in trace.kv_heads(layer):
            for start, block in trace.blocks(layer, kv_head):
                error = _sum_error(block.sum(axis=-1), sinks)
                if not np.isfinite(error).all() or error.max() > accepted:
                    raise CorruptTrace(
                        "a row is not finite or does not sum to one",
                        where=f"{trace.name}, layer {layer}, kv_head {kv_head}, rows from {start}",
                        hint="Record the trace again",
                    )
                worst = max(worst, float(error.max()))
                rows += block.shape[0] * block.shape[1]
            heads += 1
        if progress:
            progress(done + 1, len(trace.layers), f"layer {layer}")
    return ValidationReport(segments, heads, rows, worst)


def _sum_error(sums, sinks):
    """Distance of row sums from one; with attention sinks only what exceeds one is an error."""
    return np.maximum(sums - 1, 0) if sinks else np.abs(sums - 1)


def _check_shapes(trace, layer):
    spec, tokens = trace.layer(layer), trace.tokens
    expected = {"v": (spec.kv_heads, tokens, spec.value_dim)} if trace.has_values(layer) else {}
    if trace.spec.content == "qkv":
        expected |= {
            "q": (spec.q_heads, tokens, spec.head_dim),
            "k": (spec.kv_heads, tokens, spec.head_dim),
            "lo": (tokens,),
            "hi": (tokens,),
        }
    else:
        expected["p"] = (spec.q_heads, tokens * (tokens + 1) // 2)
    for kind, shape in expected.items():
        tensor = trace.tensor(layer, kind)
        if tensor.shape != shape:
            raise CorruptTrace(
                "a tensor does not have the shape its spec declares",
                where=f"{trace.name}, {layer}.{kind}",
                got=tensor.shape,
                expected=shape,
            )
        if not np.isfinite(tensor).all():
            raise CorruptTrace(
                "a tensor holds NaN or infinity", where=f"{trace.name}, {layer}.{kind}"
            )
    if trace.spec.content == "attention":
        packed, begins = trace.tensor(layer, "p"), np.arange(tokens) * np.arange(1, tokens + 1) // 2
        sums = np.add.reduceat(packed, begins, axis=-1, dtype=np.float64)
        error = _sum_error(sums, spec.sinks is not None)
        if error.max() > ROW_SUM_TOLERANCE[trace.spec.dtype]:
            raise CorruptTrace(
                "a stored row does not sum to one", where=f"{trace.name}, layer {layer}"
            )
    else:
        lo, hi = trace.tensor(layer, "lo"), trace.tensor(layer, "hi")
        position = np.arange(tokens)
        if not ((lo >= 0) & (lo <= position) & (hi == position + 1)).all():
            raise CorruptTrace(
                "a visible interval is not causal", where=f"{trace.name}, layer {layer}"
            )
