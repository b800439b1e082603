"""Small traces of made-up attention over made-up texts."""

from dataclasses import replace

import numpy as np
import reference

from h2o_theory.trace import Trace


def made_up_trace(tokens=200, strings=None, layers=2, seed=0, name="made-up"):
    """A trace of random rows, two query heads to a kv_head, with token strings if given."""
    rng = np.random.default_rng(seed)
    rows = np.stack([reference.softmax_rows(rng, 4, tokens) for _ in range(layers)])
    trace = Trace.from_attention(rows, kv_heads=2, model={"id": "made-up model"}, name=name)
    trace.spec = replace(
        trace.spec, token_strings=None if strings is None else tuple(strings),
        text={"name": "made-up text"},
    )  # fmt: skip
    return trace


def zipf_text(tokens, kinds=60, seed=0):
    """Token strings, one word each, with frequencies that fall as 1 / rank."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, kinds + 1)
    chosen = rng.choice(kinds, tokens, p=share / share.sum())
    letters = "abcdefghijklmnopqrstuvwxyz"
    return [f" {letters[k // 26]}{letters[k % 26]}word" for k in chosen]
