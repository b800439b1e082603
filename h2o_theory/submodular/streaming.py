"""One pass over a stream of elements: two swap rules that a cache could follow, and the sieve.

Both swap rules hold k elements, exchange at most one as an element arrives, and never take one
back: they are eviction policies for one fixed function. The sieve holds many sets at once; it is
no cache and stands here as the reference for what one pass can do.
"""

import numpy as np

from h2o_theory.errors import BadArgument
from h2o_theory.submodular.result import Guarantee, certified, require_cardinality
from h2o_theory.submodular.set_function import require_members

__all__ = ["preemptive_swap", "sieve_streaming", "weighted_swap"]


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
    for j in _arrivals(order, function):
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
    for j in _arrivals(order, function):
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


def sieve_streaming(function, size, *, order=None, epsilon=0.1):
    """Guess the optimum on a grid; for each guess keep what gains its fair share of the rest.

    Parameters
    ----------
    function : SetFunction
    size : int
        k, 1 .. n.
    order : sequence of int, optional
        The order of arrival; ascending by default.
    epsilon : float
        Between 0 and 1: guesses are powers of ``1 + epsilon``.

    Returns
    -------
    Maximised
        Guarantee ``1/2 - epsilon``. ``stored`` counts the distinct elements held by all guesses
        together, at most O(k log(k) / epsilon): more than a cache of k may hold.

    Raises
    ------
    BadBudget, BadArgument

    Notes
    -----
    O(log(k) / epsilon) gains for each element. A guess v takes j if
    ``f(j | S_v) >= (v/2 - f(S_v)) / (k - |S_v|)``; guesses between m and 2 k m are alive, m the
    best single element so far.

    Source: Badanidiyuru et al. 2014.
    """
    size = require_cardinality(size, function)
    if not 0 < epsilon < 1:
        raise BadArgument(
            "not usable", where="epsilon", got=epsilon, expected="a number between 0 and 1"
        )
    empty, base, guesses = function.select(), np.log1p(epsilon), {}
    best_alone, evaluations, stored = 0.0, 0, 0
    for j in _arrivals(order, function):
        best_alone = max(best_alone, empty.gain(j))
        evaluations += 1
        if best_alone <= 0:
            continue
        first = int(np.ceil(np.log(best_alone) / base - 1e-9))
        last = int(np.floor(np.log(2 * size * best_alone) / base + 1e-9))
        guesses = {
            power: guesses.get(power) or function.select() for power in range(first, last + 1)
        }
        for power, selection in guesses.items():
            free = size - len(selection.members)
            if free == 0:
                continue
            evaluations += 1
            if selection.gain(j) >= ((1 + epsilon) ** power / 2 - selection.value) / free:
                selection.add(j)
        stored = max(stored, len({u for held in guesses.values() for u in held.members}))
    found = max(guesses.values(), key=lambda held: held.value, default=empty)
    promise = Guarantee(max(1 / 2 - epsilon, 0.0), "Badanidiyuru et al. 2014")
    return certified(found, size, "sieve streaming", evaluations, guarantee=promise, stored=stored)


def _arrivals(order, function):
    """The elements in their order of arrival."""
    order = range(function.size) if order is None else order
    return require_members(order, function.size, "order")
