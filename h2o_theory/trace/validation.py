"""A whole trace read and checked on request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from h2o_theory.annotations import Progress
from h2o_theory.errors import CorruptTrace, InvalidAttention
from h2o_theory.trace.reader import BLOCK_ROWS
from h2o_theory.trace.rows import largest_row_error, packed_range, row_sum_error

if TYPE_CHECKING:
    from h2o_theory.trace.reader import Trace

__all__ = ["ValidationReport", "validate"]

ROUNDING = 1e-9
"""How far from one the sum of a row recomputed in float64 may be."""


@dataclass(frozen=True)
class ValidationReport:
    """What :func:`validate` looked at; it raises rather than report a fault.

    Attributes
    ----------
    segments, kv_heads, rows : int
        Segments whose checksum was verified, kv_heads and query rows read.
    worst_row_sum_error : float
        Largest distance of a row's sum from one, in the rows as stored or as recomputed from Q
        and K; in layers with attention sinks, the largest excess over one.
    """

    segments: int
    kv_heads: int
    rows: int
    worst_row_sum_error: float


def validate(trace: Trace, progress: Progress | None = None) -> ValidationReport:
    """Read a whole trace and check checksums, tensors, gaps, finite values and row sums.

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

    Examples
    --------
    >>> import numpy as np
    >>> from h2o_theory import Trace, validate
    >>> validate(Trace.from_attention(np.eye(3).reshape(1, 1, 3, 3))).rows
    3
    """
    segments = trace.verify_segments()
    _require_spec(trace)
    for part in trace.parts():
        _require_declared(trace, part)
    kv_heads, rows, worst = 0, 0, 0.0
    for done, layer in enumerate(trace.layers):
        if trace.spec.content == "qkv":
            _require_intervals(trace, layer)
        for kv_head in trace.kv_heads(layer):
            _require_finite(trace, layer, kv_head)
            for start in range(0, trace.tokens, BLOCK_ROWS):
                stop = min(start + BLOCK_ROWS, trace.tokens)
                worst = max(worst, _block_error(trace, layer, kv_head, start, stop))
            rows += trace.layer(layer).group * trace.tokens
            kv_heads += 1
        if progress:
            progress(done + 1, len(trace.layers), f"layer {layer}")
    return ValidationReport(segments, kv_heads, rows, worst)


def _corrupt(trace, what, where, got="", expected=""):
    return CorruptTrace(
        what,
        where=f"{trace.name}, {where}",
        got=got,
        expected=expected,
        hint="Record the trace again",
    )


def _require_spec(trace):
    """The spec against itself: lengths that must agree."""
    spec, tokens = trace.spec, trace.tokens
    for name in ("token_ids", "token_strings"):
        listed = getattr(spec, name)
        if listed is not None and len(listed) != tokens:
            raise _corrupt(trace, f"{name} do not fit the length", "spec.json", len(listed), tokens)
    if spec.prompt_length is not None and not 0 <= spec.prompt_length <= tokens:
        raise _corrupt(
            trace,
            "the prompt is longer than the sequence",
            "spec.json",
            spec.prompt_length,
            f"0 to {tokens}",
        )


def _require_declared(trace, part):
    """The tensors of one segment: exactly those that the spec declares, each of its shape."""
    label, layers, start, stop, found = part
    expected = {}
    for layer in layers:
        if layer not in trace.layers:
            raise _corrupt(trace, "a layer that the spec does not declare", label, layer)
        expected |= _declared(trace, layer, start, stop)
    for name in sorted(expected.keys() | found.keys()):
        if found.get(name) != expected.get(name):
            raise _corrupt(
                trace,
                "a tensor is not what the spec declares",
                f"{label}, {name}",
                found.get(name, "no such tensor"),
                expected.get(name, "no such tensor"),
            )


def _declared(trace, layer, start, stop):
    """Names, shapes and dtypes of a layer's tensors for the tokens ``start .. stop``."""
    spec, rows, dtype = trace.layer(layer), stop - start, trace.spec.dtype
    tensors = {}
    if spec.value_dim:
        tensors["v"] = ((spec.kv_heads, rows, spec.value_dim), dtype)
    if trace.spec.content == "qkv":
        tensors |= {
            "q": ((spec.q_heads, rows, spec.head_dim), dtype),
            "k": ((spec.kv_heads, rows, spec.head_dim), dtype),
            "lo": ((rows,), "int32"),
            "hi": ((rows,), "int32"),
        }
    else:
        begin, end = packed_range(start, stop)
        tensors["p"] = ((spec.q_heads, end - begin), dtype)
    return {f"{layer}.{kind}": entry for kind, entry in tensors.items()}


def _require_intervals(trace, layer):
    lo, hi = trace.tensor(layer, "lo"), trace.tensor(layer, "hi")
    position = np.arange(trace.tokens)
    if not ((lo >= 0) & (lo <= position) & (hi == position + 1)).all():
        raise _corrupt(trace, "a visible interval is not causal", f"layer {layer}")


def _require_finite(trace, layer, kv_head):
    reads = {"q": trace.queries, "k": trace.keys} if trace.spec.content == "qkv" else {}
    if trace.has_values(layer):
        reads["v"] = trace.values
    for kind, read in reads.items():
        if not np.isfinite(read(layer, kv_head)).all():
            raise _corrupt(
                trace, "a tensor holds NaN or infinity", f"{layer}.{kind}, kv_head {kv_head}"
            )


def _block_error(trace, layer, kv_head, start, stop):
    """Check one block of rows; returns the largest error of a row's sum."""
    sinks = trace.layer(layer).sinks is not None
    place = f"layer {layer}, kv_head {kv_head}, rows {start} to {stop - 1}"
    if trace.spec.content == "attention":
        rows = trace.stored_rows(layer, kv_head, start, stop)
        try:
            return largest_row_error(rows, start, layer=layer, dtype=trace.spec.dtype, sinks=sinks)
        except InvalidAttention as error:
            raise _corrupt(trace, error.what, place, error.got, error.expected) from None
    sums = trace.rows(layer, kv_head, start, stop).sum(axis=-1)
    error = row_sum_error(sums, sinks)
    if not np.isfinite(sums).all() or error.max() > ROUNDING:
        raise _corrupt(trace, "a row is not finite or does not sum to one", place)
    return float(error.max())
