"""Maximisers that look at sets once: the k best single elements, and eviction down to k."""

import numpy as np

from h2o_theory.submodular.bounds import total_curvature
from h2o_theory.submodular.result import (
    ApproximationGuarantee,
    Maximised,
    certified,
    require_cardinality,
)
from h2o_theory.submodular.set_function import SetFunction

__all__ = ["removal_greedy", "top_k"]


def top_k(function: SetFunction, size: int) -> Maximised:
    """The k elements of the largest f(j), each valued alone.

    Parameters
    ----------
    function : SetFunction
    size : int
        k, 1 .. n.

    Returns
    -------
    Maximised
        Guarantee ``max(1/k, 1 - c)``, c the total curvature: exact for a modular f.

    Raises
    ------
    BadBudget
        ``size`` is out of range.

    Notes
    -----
    n gains, and 2 n for c. Proof: the best single element alone is worth OPT/k; and
    ``f(S) >= (1 - c) sum of f(j)`` over S, a sum that is no smaller than over the best set.
    """
    size = require_cardinality(size, function)
    selection = function.select()
    gains = selection.gains(selection.outside())
    for j in np.argsort(-gains, kind="stable")[:size]:
        selection.add(j)
    factor, source = 1 / size, "the best element alone, proved here"
    if function.properties.submodular:
        factor = max(factor, 1 - total_curvature(function))
        source = "total curvature and the best element, proved here"
    return certified(
        selection, size, "top-k", function.size, guarantee=ApproximationGuarantee(factor, source)
    )


def removal_greedy(function: SetFunction, size: int) -> Maximised:
    """Start from all elements and give up the one of the smallest loss until k are left.

    This is eviction: with a modular f, and with f read anew at each step, it is what H2O does.

    Parameters
    ----------
    function : SetFunction
    size : int
        k, 1 .. n.

    Returns
    -------
    Maximised
        Guarantee ``(1 - c)^2``, c the total curvature: exact for a modular f, nothing for c = 1.
        ``members`` are in order of their index; ``stored`` is n.

    Raises
    ------
    BadBudget
        ``size`` is out of range.

    Notes
    -----
    About (n^2 - k^2) / 2 losses, and 2 n values for c. Among equals the lowest index goes.

    Proof. When u is given up, its loss is at most that of every s kept to the end; so, with
    ``(1 - c) f(u) <= loss of u`` and ``loss of s <= f(s)``, ``(1 - c) f(u) <= f(s)``. Pair the
    members of the best set that were given up with as many of S outside it:
    ``f(S) >= (1 - c) sum over S of f(s) >= (1 - c)^2 sum over the best set >= (1 - c)^2 OPT``.
    """
    size = require_cardinality(size, function)
    selection, evaluations = function.select(range(function.size)), 0
    while len(selection.members) > size:
        evaluations += len(selection.members)
        selection.drop(selection.members[int(selection.losses().argmin())])
    guarantee = None
    if function.properties.submodular:
        source = "total curvature, proved here"
        guarantee = ApproximationGuarantee((1 - total_curvature(function)) ** 2, source)
    return certified(
        selection,
        size,
        "removal greedy",
        evaluations,
        guarantee=guarantee,
        stored=function.size,
    )
