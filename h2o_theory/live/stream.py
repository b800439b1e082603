"""Pushing a known text through a model in pieces, so that its logits never exist all at once."""

import inspect

import numpy as np

from h2o_theory.dependencies import require
from h2o_theory.errors import BadArgument

__all__ = ["PIECE", "as_token_ids", "cache_argument", "piece_of", "stream_logits"]

PIECE = 256
"""Tokens of one forward pass: T x vocabulary of logits would outweigh everything else."""


def cache_argument(model):
    """The name by which a model takes its KV cache; transformers is renaming it."""
    names = inspect.signature(type(model).forward).parameters
    return "cache" if "cache" in names else "past_key_values"


def as_token_ids(ids):
    """Token ids as int64 [T], from a list, an array or a tensor [T] or [1, T]."""
    if hasattr(ids, "detach"):
        ids = ids.detach().cpu().numpy()
    return np.asarray(ids, dtype=np.int64).reshape(-1)


def piece_of(policy, piece=PIECE):
    """Tokens of one forward pass under a policy: one if its set serves all layers, as the first
    layer has to know what the last one saw of the token before."""
    return 1 if policy.scope == "model" else piece


def stream_logits(model, ids, cache, piece=PIECE, progress=None, label="forward pass"):
    """Yield (start, logits [n, vocabulary]) for successive pieces of a sequence.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    ids : int64 array [T]
    cache : transformers.Cache
        Filled on the way.
    piece : int
        Tokens of one forward pass.
    progress : callable (done, total, label), optional
    """
    torch = require("torch")
    if piece < 1:
        raise BadArgument("no token at a time", where="piece", got=piece, expected="at least 1")
    name = cache_argument(model)
    for start in range(0, len(ids), piece):
        batch = torch.from_numpy(ids[None, start : start + piece]).to(model.device)
        with torch.no_grad():
            output = model(input_ids=batch, use_cache=True, **{name: cache})
        yield start, output.logits[0]
        if progress:
            progress(min(start + piece, len(ids)), len(ids), label)
