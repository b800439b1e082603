"""One pass over a stream of elements: two swap rules that a cache could follow.

Both hold k elements, exchange at most one as an element arrives, and never take one back: they are
eviction policies for one fixed function.
"""

import numpy as np

from h2o_theory.errors import BadArgument
from h2o_theory.submodular.arguments import require_members
from h2o_theory.submodular.result import Guarantee, certified, require_cardinality

__all__ = ["arrivals", "preemptive_swap", "weighted_swap"]


def weighted_swap(function, size, *, order=None):
    """Weigh each element by its marginal gain at arrival; swap if it weighs twice the lightest.

    Parameters
    ----------
    function : SetFunction
    size : int
        k, 1 .. n.
    order : sequence of int, optional
        The order of arrival; ascending by default. Elements left out never arrive.

    Returns
    -------
    Maximised
        Guarantee 1/4.

    Raises
    ------
    BadBudget, BadArgument

    Notes
    -----
    One gain for each element.

    Source: Chakrabarti, Kale, IPCO 2014, for one matroid.
    """
    size = require_cardinality(size, function)
    selection, weights, evaluations = function.select(), {}, 0
    for j in arrivals(order, function):
        weight = selection.gain(j)
        evaluations += 1
        if len(selection.members) == size:
            lightest = min(selection.members, key=lambda u: (weights[u], u))
            if weight < 2 * weights[lightest] or weight <= 0:
                continue
            selection.drop(lightest)
        selection.add(j)
        weights[j] = weight
    promise = Guarantee(1 / 4, "Chakrabarti, Kale 2014")
    return certified(
        selection, size, "weighted swap", evaluations, guarantee=promise, stored=size + 1
    )


def preemptive_swap(function, size, *, order=None, threshold=1.0):
    r"""Swap if the best exchange gains at least ``threshold * f(S) / k``.

    Parameters
    ----------
    function : SetFunction
    size : int
        k, 1 .. n.
    order : sequence of int, optional
        The order of arrival; ascending by default.
    threshold : float
        c >= 0. With 0 every exchange that gains is made: that is the swap rule of Definition D.22
        of the H2O paper, which has no guarantee here.

    Returns
    -------
    Maximised
        Guarantee ``c / (c + 1)^2``, 1/4 at c = 1; none at c = 0.

    Raises
    ------
    BadBudget, BadArgument

    Notes
    -----
    k exchanges for each element. Among equal exchanges the member held longest goes.

    Source: Buchbinder, Feldman, Schwartz, SODA 2015.
    """
    size = require_cardinality(size, function)
    if not 0 <= threshold < np.inf:
        raise BadArgument("not usable", where="threshold", got=threshold, expected="at least 0")
    selection, evaluations = function.select(), 0
    for j in arrivals(order, function):
        if len(selection.members) == size:
            changes = selection.swaps(j)
            evaluations += size
            best = int(changes.argmax())
            if changes[best] <= 0 or changes[best] < threshold * selection.value / size:
                continue
            selection.drop(selection.members[best])
        selection.add(j)
    promise = None
    if threshold:
        factor = threshold / (threshold + 1) ** 2
        promise = Guarantee(factor, "Buchbinder, Feldman, Schwartz 2015")
    return certified(
        selection, size, "preemptive swap", evaluations, guarantee=promise, stored=size + 1
    )


def arrivals(order, function):
    """The elements in their order of arrival."""
    order = range(function.size) if order is None else order
    return require_members(order, function.size, "order")
