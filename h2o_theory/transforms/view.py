"""A trace as a model with transformed keys would have attended."""

import numpy as np

from h2o_theory.attention import attention_logits, softmax_rows
from h2o_theory.trace.reader import BLOCK_ROWS

__all__ = ["KEPT_BYTES", "TransformedTrace"]


KEPT_BYTES = 2**29
"""Rows up to this size are kept, as every policy and budget of a transform reads them again."""


class TransformedTrace:
    """A trace whose rows come from the keys a transform stores; everything else is the trace's.

    Row t is the softmax of the logits with key j exact from ``exact_keys[t]`` on and as stored
    before, so policies see what a cache with transformed keys computes.

    Parameters
    ----------
    trace : Trace
        With queries, keys and values.
    transform : Transform
    prefill : int
    """

    def __init__(self, trace, transform, prefill):
        self._trace, self._transform, self._prefill = trace, transform, prefill
        self._stored, self._rows, self._size = {}, {}, 0

    def __getattr__(self, name):
        return getattr(self._trace, name)

    def stored(self, layer, kv_head):
        """The :class:`Stored` form of one kv_head."""
        if (layer, kv_head) not in self._stored:
            queries = self._trace.queries(layer, kv_head).astype(np.float64)
            self._stored[layer, kv_head] = self._transform.stored(
                queries * self._trace.layer(layer).scaling,
                self._trace.keys(layer, kv_head).astype(np.float64),
                self._trace.values(layer, kv_head).astype(np.float64),
                self._prefill,
            )
        return self._stored[layer, kv_head]

    def logits(self, layer, kv_head, start, stop):
        """Logits [G, stop - start, T] of the rows, over all keys."""
        spec, stored = self._trace.layer(layer), self.stored(layer, kv_head)
        queries = self._trace.queries(layer, kv_head, start, stop)
        exact = attention_logits(
            queries, self._trace.keys(layer, kv_head), spec.scaling, spec.softcap
        )
        if not stored.exact_keys[start:stop].any():
            return exact
        rounded = attention_logits(queries, stored.keys, spec.scaling, spec.softcap)
        still = np.arange(self._trace.tokens) >= stored.exact_keys[start:stop, None]
        return np.where(still, exact, rounded)

    def rows(self, layer, kv_head, start=0, stop=None):
        """Attention rows as :meth:`h2o_theory.Trace.rows` gives them."""
        stop = self._trace.tokens if stop is None else stop
        if (layer, kv_head) not in self._rows:
            spec = self._trace.layer(layer)
            size = 8 * spec.group * self._trace.tokens**2
            if self._size + size > KEPT_BYTES:
                return self._make_rows(layer, kv_head, start, stop)
            self._size += size
            self._rows[layer, kv_head] = self._make_rows(layer, kv_head, 0, self._trace.tokens)
        return self._rows[layer, kv_head][:, start:stop]

    def _make_rows(self, layer, kv_head, start, stop):
        lo, hi = (self._trace.tensor(layer, kind)[start:stop] for kind in ("lo", "hi"))
        return softmax_rows(
            self.logits(layer, kv_head, start, stop), lo, hi, self._sinks(layer, kv_head)
        )

    def _sinks(self, layer, kv_head):
        spec = self._trace.layer(layer)
        place = spec.kv_head_ids.index(kv_head) * spec.group
        return None if spec.sinks is None else spec.sinks[place : place + spec.group]

    def blocks(self, layer, kv_head, block_rows=BLOCK_ROWS):
        """Yield ``(start, rows)`` for consecutive blocks of rows."""
        tokens = self._trace.tokens
        for start in range(0, tokens, block_rows):
            stop = min(start + block_rows, tokens)
            yield start, np.ascontiguousarray(self.rows(layer, kv_head, start, stop))
