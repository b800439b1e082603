"""Coverage: how much of a universe the chosen sets cover, plain or weighted."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from h2o_theory.errors import BadArgument
from h2o_theory.optimum.shapes import capped
from h2o_theory.submodular.arguments import require_members, require_weights
from h2o_theory.submodular.row_sums import RowSums

__all__ = ["coverage", "weighted_coverage"]


def coverage(sets: Sequence[Iterable[int]], universe: int) -> RowSums:
    """``f(S) = |union of the sets C_j, j in S|`` (Definition D.2 of the H2O paper).

    Parameters
    ----------
    sets : sequence of collections of int
        C_j for each element j: items ``0 .. universe-1``.
    universe : int
        How many items there are.

    Returns
    -------
    RowSums
        Normalised, monotone, submodular.

    Raises
    ------
    BadArgument
        A set holds something that is no item, or twice the same.
    """
    return weighted_coverage(sets, np.ones(universe), name="coverage")


def weighted_coverage(
    sets: Sequence[Iterable[int]], weights: ArrayLike, *, name: str = "weighted coverage"
) -> RowSums:
    """``f(S) = sum of the weights of all items covered by some C_j, j in S``.

    Parameters
    ----------
    sets : sequence of collections of int
        C_j for each element j: indices into ``weights``.
    weights : array_like [m]
        Of the items; finite, at least 0.
    name : str

    Returns
    -------
    RowSums
        Normalised, monotone, submodular.
    """
    weights = require_weights(weights, 1, "weights")
    if not len(sets):
        raise BadArgument("sets must hold at least one set", got=repr(sets))
    covers = np.zeros((weights.size, len(sets)))
    for j, items in enumerate(sets):
        covers[require_members(items, weights.size, f"sets[{j}]"), j] = 1.0
    return RowSums(name, covers, capped(1.0), weights)
