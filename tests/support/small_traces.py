"""Small traces in memory, of random rows or of queries, keys and values."""

import numpy as np
import reference

from h2o_theory.trace import Trace
from h2o_theory.trace.spec import LayerSpec, TraceSpec
from h2o_theory.trace.store import MemoryStore


def trace_with_keys(layers=2, tokens=40, rope=None):
    """A trace of queries, keys and values: 4 query heads of 2 kv_heads."""
    rng, tensors, hi = np.random.default_rng(7), {}, np.arange(1, tokens + 1)
    for layer in range(layers):
        tensors[f"{layer}.q"] = rng.normal(size=(4, tokens, 6))
        tensors[f"{layer}.k"], tensors[f"{layer}.v"] = rng.normal(size=(2, 2, tokens, 6))
        tensors[f"{layer}.lo"], tensors[f"{layer}.hi"] = 0 * hi, hi
    specs = tuple(LayerSpec(layer, 4, 2, 6, 6, 6**-0.5) for layer in range(layers))
    spec = TraceSpec(tokens, specs, model={"id": "random", "family": "llama", "rope": rope or {}})
    return Trace(spec, MemoryStore(tensors, list(range(layers)), tokens), "random")


def small_trace(layers=2, q_heads=4, kv_heads=2, tokens=40, seed=3):
    rng = np.random.default_rng(seed)
    attention = np.stack([reference.softmax_rows(rng, q_heads, tokens) for _ in range(layers)])
    values = rng.normal(size=(layers, kv_heads, tokens, 6))
    return Trace.from_attention(attention, kv_heads=kv_heads, values=values)
