"""Coverage: how much of a universe the chosen sets cover, plain, weighted, or up to saturation."""

import numpy as np

from h2o_theory.errors import BadArgument
from h2o_theory.optimum.shapes import capped
from h2o_theory.submodular.arguments import require_members, require_weights
from h2o_theory.submodular.row_sums import RowSums

__all__ = ["coverage", "saturated_coverage", "weighted_coverage"]


def coverage(sets, universe):
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


def weighted_coverage(sets, weights, *, name="weighted coverage"):
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
        raise BadArgument("no set to choose from", where="sets", got=repr(sets))
    covers = np.zeros((weights.size, len(sets)))
    for j, items in enumerate(sets):
        covers[require_members(items, weights.size, f"sets[{j}]"), j] = 1.0
    return RowSums(name, covers, capped(1.0), weights)


def saturated_coverage(similarity, share):
    """``f(S) = sum_i min(C_i(S), share * C_i(V))``, ``C_i(S) = sum_{j in S} similarity[i, j]``.

    An item counts as served once the chosen elements give it that share of what all would.

    Parameters
    ----------
    similarity : array_like [m, n]
        Finite, at least 0.
    share : float
        Above 0 and at most 1.

    Returns
    -------
    RowSums
        Normalised, monotone, submodular.

    Notes
    -----
    Source: Lin, Bilmes 2011. Computed as ``sum_i share C_i(V) min(1, C_i(S) / (share C_i(V)))``.
    """
    similarity = require_weights(similarity, 2, "similarity")
    if not 0 < share <= 1:
        raise BadArgument("not a share", where="share", got=share, expected="above 0, at most 1")
    limits = share * similarity.sum(axis=1)
    scaled = similarity / np.where(limits > 0, limits, 1.0)[:, None]
    return RowSums("saturated coverage", scaled, capped(1.0), limits)
