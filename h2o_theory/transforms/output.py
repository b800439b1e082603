"""The output of a head whose cache is cut and whose entries are transformed."""

import numpy as np

from h2o_theory.attention import renormalise
from h2o_theory.attention.measures import relative_errors
from h2o_theory.trace.reader import BLOCK_ROWS

__all__ = ["output_error"]


def output_error(trace, view, layer, kv_head, evicted_at, prefill):
    """Retained mass and relative output error of one schedule, means over the scored rows.

    Parameters
    ----------
    trace : TransformedTrace
        The exact rows, kept, and values.
    view : TransformedTrace
        Rows from the stored keys, and the stored values.
    layer, kv_head : int
    evicted_at : array [T]
    prefill : int

    Returns
    -------
    tuple of float
        Retained mass of the exact rows (mean over the group and rows); relative error of the
        output (mean over rows and query heads whose full output is not zero).
    """
    stored = view.stored(layer, kv_head)
    values = trace.values(layer, kv_head).astype(np.float64)
    column = np.arange(trace.tokens)
    mass, errors, scored = 0.0, [], trace.tokens - prefill
    for start in range(prefill, trace.tokens, BLOCK_ROWS):
        stop = min(start + BLOCK_ROWS, trace.tokens)
        row = np.arange(start, stop)[:, None]
        seen = (column <= row) & (row <= evicted_at)
        full = trace.rows(layer, kv_head, start, stop)
        mass += float(np.where(seen, full, 0.0).sum(axis=-1).mean(axis=0).sum())
        rows = view.rows(layer, kv_head, start, stop)
        rows = renormalise(rows, seen, 1 - rows.sum(axis=-1, keepdims=True))
        if stored.features is not None:
            rows = _with_memory(seen, view, stored, layer, kv_head, start, stop)
        exact = column >= stored.exact_values[start:stop, None]
        output = np.where(exact, rows, 0.0) @ values + np.where(exact, 0.0, rows) @ stored.values
        errors.append(relative_errors(output, full @ values))
    errors = np.concatenate(errors)
    return mass / scored, float(errors.mean()) if errors.size else np.nan


def _with_memory(seen, view, stored, layer, kv_head, start, stop):
    """Rows in which an evicted key weighs what the kernel gives it, under one denominator."""
    logits = view.logits(layer, kv_head, start, stop)
    gone = (np.arange(logits.shape[-1]) <= np.arange(start, stop)[:, None]) & ~seen
    largest = np.where(seen, logits, -np.inf).max(axis=-1, keepdims=True)
    queries, keys = stored.features
    weights = (queries[:, start:stop] @ keys.T) * np.exp(-largest)
    visible = np.where(seen, np.exp(logits - largest), 0.0)
    weights = visible + np.where(gone, weights, 0.0)
    return weights / weights.sum(axis=-1, keepdims=True)
