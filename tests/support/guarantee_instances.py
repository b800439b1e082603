"""Random attention and schedules for the guarantee, and the concave shapes it is measured with."""

import numpy as np

from h2o_theory.optimum import capped, linear, log_saturation, square_root

SHAPES = (linear(), square_root(), log_saturation(3.0), capped(0.7))


def attention(rng, tokens, group=1, tied=False):
    """Random rows [G, T, T]; ``tied`` has few distinct values and zeros."""
    rows = (
        rng.integers(0, 3, (group, tokens, tokens)) if tied else rng.random((group, tokens, tokens))
    )
    rows = np.tril(rows.astype(float))
    rows[:, 0, 0] = 1.0
    mass = rows.sum(axis=2, keepdims=True)
    return np.divide(rows, mass, out=rows, where=mass > 0)


def schedule(rng, tokens, budget, prefill=0):
    """A random schedule of a policy at a budget."""
    evicted_at, visible = np.full(tokens, tokens), []
    for t in range(tokens):
        visible.append(t)
        while len(visible) >= budget and t >= prefill - 1:
            evicted_at[visible.pop(rng.integers(len(visible)))] = t
    return evicted_at
