"""How far a set function is from modular (curvature) and from submodular (submodularity ratio)."""

import numpy as np

from h2o_theory.errors import BadArgument
from h2o_theory.submodular.arguments import require_members
from h2o_theory.submodular.definitions import all_values
from h2o_theory.submodular.result import require_cardinality

__all__ = ["greedy_curvature", "submodularity_ratio", "total_curvature"]

# Subsets of the ground set that the submodularity ratio may enumerate: pairs of disjoint ones.
_RATIO_SIZE = 12


def total_curvature(function):
    r"""``c = 1 - min_j [f(V) - f(V - j)] / f(j)``: how much of its worth an element can lose.

    Parameters
    ----------
    function : SetFunction
        Declared submodular; elements with f(j) = 0 do not count.

    Returns
    -------
    float
        0 (modular) to 1. On attention rows it is about 1, since the last key of a set that has
        all others adds next to nothing: then it says no more than 1 - 1/e does.

    Raises
    ------
    BadArgument
        ``function`` is not declared submodular.

    Notes
    -----
    n gains and n losses.

    Source: Conforti, Cornuejols 1984.
    """
    _require_submodular(function)
    empty = function.select()
    alone = empty.gains(empty.outside())
    last = function.select(range(function.size)).losses()
    counted = alone > 0
    shares = last[counted] / alone[counted]
    return float(np.clip(1 - shares.min(initial=1.0), 0.0, 1.0))


def greedy_curvature(function, order):
    r"""``c_g = 1 - min f(j | S_i) / f(j)`` over greedy prefixes S_1 .. S_{k-1} and j not in S_i.

    At most the total curvature, and known after the run; gives
    :func:`greedy_curvature_factor`.

    Parameters
    ----------
    function : SetFunction
        Declared submodular.
    order : sequence of int
        ``members`` of a greedy run of k steps.

    Returns
    -------
    float
        0 to 1; 0 for k = 1.

    Raises
    ------
    BadArgument
        ``function`` is not declared submodular, or ``order`` is no list of its elements.

    Notes
    -----
    At most k n gains.

    Source: Conforti, Cornuejols 1984.
    """
    _require_submodular(function)
    order = require_members(order, function.size, "order")
    selection = function.select()
    alone = selection.gains(selection.outside())
    least = 1.0
    for j in order[:-1]:
        selection.add(j)
        outside = selection.outside()
        outside = outside[alone[outside] > 0]
        shares = selection.gains(outside) / alone[outside]
        least = min(least, float(shares.min(initial=1.0)))
    return float(np.clip(1 - least, 0.0, 1.0))


def submodularity_ratio(function, base, size):
    r"""How close to submodular a monotone function is, as far as greedy can notice.

    .. math:: \gamma_{U,k} = \min_{L \subseteq U,\ |S| \le k,\ S \cap L = \emptyset}
              \frac{\sum_{x \in S} f(x \mid L)}{f(S \mid L)}

    Parameters
    ----------
    function : SetFunction
        Monotone, of at most 12 elements.
    base : collection of int
        U: the set that greedy returned.
    size : int
        k.

    Returns
    -------
    float
        At least 1 for a submodular f, capped there; greedy reaches
        :func:`ratio_factor` of the optimum.

    Raises
    ------
    BadArgument
        More than 12 elements, or an impossible ``base``.
    BadBudget
        ``size`` is out of range.

    Notes
    -----
    2^n values, then at most 3^n ratios. Pairs with f(S | L) = 0 do not count.

    Source: Das, Kempe 2011.
    """
    if function.size > _RATIO_SIZE:
        raise BadArgument(
            "too many elements to enumerate",
            where="function",
            got=function.size,
            expected=f"at most {_RATIO_SIZE}",
        )
    size = require_cardinality(size, function)
    base = require_members(base, function.size, "base")
    table = all_values(function)
    masks = np.arange(len(table))
    small = masks[np.bitwise_count(masks) <= size]
    ratio = 1.0
    for inner in masks[(masks & ~sum(1 << j for j in base)) == 0]:
        outer = small[(small & inner) == 0]
        together = table[inner | outer] - table[inner]
        apart = np.zeros(outer.size)
        for j in range(function.size):
            apart += np.where(outer >> j & 1, table[inner | 1 << j] - table[inner], 0.0)
        counted = together > 0
        shares = apart[counted] / together[counted]
        ratio = min(ratio, float(shares.min(initial=1.0)))
    return max(ratio, 0.0)


def _require_submodular(function):
    if not function.properties.submodular:
        raise BadArgument(
            "curvature is defined for submodular functions",
            where="function",
            got=repr(function),
        )
