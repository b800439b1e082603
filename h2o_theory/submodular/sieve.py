"""Sieve streaming: many sets at once, each for one guess of the optimum.

It holds more elements than k, so it is no cache; it stands here as the reference for what one pass
over a stream can do.
"""

import numpy as np

from h2o_theory.errors import BadArgument
from h2o_theory.submodular.result import Guarantee, certified, require_cardinality
from h2o_theory.submodular.swap_streaming import arrivals

__all__ = ["sieve_streaming"]


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
    for j in arrivals(order, function):
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
