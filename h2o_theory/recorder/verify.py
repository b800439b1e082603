"""Recorded rows against the model's own: the figure that the table of families states."""

import copy
import tempfile
from pathlib import Path

import numpy as np

from h2o_theory.dependencies import require
from h2o_theory.recorder.capture import record
from h2o_theory.recorder.tiny import SHAPES, tiny_model
from h2o_theory.trace import open_trace

__all__ = ["TOLERANCE", "largest_deviation"]

TOLERANCE = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2}
"""Accepted absolute deviation of any attention entry from eager ``output_attentions``, by dtype.

In half precision the model rounds logits and rows, the trace does not: the bounds are a few units
in the last place of logits near 20, as the tiny models have them.
"""


def largest_deviation(family: str, dtype: str = "float32", tokens: int = 40) -> float:
    """Record a tiny random model of a family and compare every row with eager attention.

    Parameters
    ----------
    family : str
    dtype : {"float32", "float16", "bfloat16"}
        float32 runs the family's fast attention (sdpa where it has it); the half types run
        eager, which rounds as the reference does.
    tokens : int

    Returns
    -------
    float
        Largest absolute difference of an entry, over all layers and query heads.
    """
    torch = require("torch")
    model = tiny_model(family, attention=None if dtype == "float32" else "eager", dtype=dtype)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, SHAPES["vocab_size"], (1, tokens), generator=generator)
    reference = copy.deepcopy(model)
    reference.set_attn_implementation("eager")
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        expected = reference(ids, output_attentions=True, use_cache=False).attentions
        with record(model, Path(folder) / "trace") as recording:
            model(ids, use_cache=False)
        trace = open_trace(recording.path)
        return max(
            float(np.abs(_rows(trace, layer) - expected[layer][0].float().numpy()).max())
            for layer in trace.layers
        )


def _rows(trace, layer):
    return np.concatenate([trace.rows(layer, kv_head) for kv_head in trace.kv_heads(layer)])
