"""The part of an attention call that is kept: some heads, and one sequence without padding."""

import numpy as np

from h2o_theory.recorder.call import Call, cut

__all__ = ["Heads", "call_of"]


class Heads:
    """Which of a layer's heads are recorded: the chosen kv_heads and the query heads they serve."""

    def __init__(self, chosen, q_heads, kv_heads):
        group = q_heads // kv_heads
        self.kv = np.array(chosen)
        self.q = (self.kv[:, None] * group + np.arange(group)).ravel()


def call_of(layer, spot, heads, query, key, value, output, inner, arithmetic):
    """The chosen heads and the tokens (no padding) of one sequence's part of a call."""
    return Call(
        layer=layer,
        start=spot.start,
        stop=spot.stop,
        base=spot.base,
        query=cut(cut(query, heads.q, 0), spot.rows, 1),
        key=cut(cut(key, heads.kv, 0), spot.columns, 1),
        value=cut(cut(value, heads.kv, 0), spot.columns, 1),
        output=cut(cut(output, spot.rows, 0), heads.q, 1),
        lo=spot.lo,
        hi=spot.hi,
        inner=inner,
        arithmetic=arithmetic,
    )
