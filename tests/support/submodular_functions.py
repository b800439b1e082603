"""Small instances of every shipped set function, and hypothesis strategies for them."""

import numpy as np
from hypothesis import strategies as st

from h2o_theory import submodular as sm
from h2o_theory.optimum import capped, log_saturation, square_root

SHAPES = {"sqrt": square_root(), "log1p": log_saturation(), "capped": capped(0.4)}


def instances(rng, size, tied=False):
    """Name -> function on ``size`` elements; ``tied`` draws small integers, so that gains tie."""

    def numbers(*shape):
        return rng.integers(0, 3, shape).astype(float) if tied else rng.random(shape)

    rows = np.tril(numbers(size, size) + 0.01)
    rows /= rows.sum(axis=1, keepdims=True)
    items = [np.flatnonzero(rng.random(9) < 0.3).tolist() for _ in range(size)]
    keys = numbers(size, 3) - 0.5
    return {
        "modular": sm.modular(numbers(size)),
        "concave of modular": sm.concave_of_modular(numbers(size), square_root()),
        "budget-additive": sm.budget_additive(numbers(size), 1.3),
        "coverage": sm.coverage(items, 9),
        "weighted coverage": sm.weighted_coverage(items, numbers(9)),
        "facility location": sm.facility_location(sm.key_similarity(keys)),
        "log-determinant": sm.log_det(keys @ keys.T, 0.5),
        **{f"rows {name}": sm.row_sums(rows, shape) for name, shape in SHAPES.items()},
    }


NAMES = tuple(instances(np.random.default_rng(0), 3))


@st.composite
def functions(draw, least=2, most=7):
    """Any shipped function, of a random size, with ties or without."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.integers(least, most))
    return instances(rng, size, draw(st.booleans()))[draw(st.sampled_from(NAMES))]


def best_value(function, size):
    """The largest f over all sets of at most ``size`` elements, by brute force over bit masks."""
    sets = (
        [j for j in range(function.size) if mask >> j & 1] for mask in range(1 << function.size)
    )
    return max(function.value(members) for members in sets if len(members) <= size)
