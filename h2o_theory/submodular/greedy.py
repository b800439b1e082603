"""Greedy maximisation, plain, lazy, and with a noisy oracle. Ties: the lowest index."""

from collections.abc import Callable
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import ArrayLike

from h2o_theory.annotations import FloatArray, IntArray
from h2o_theory.errors import BadArgument
from h2o_theory.submodular.bounds import greedy_factor
from h2o_theory.submodular.result import (
    ApproximationGuarantee,
    Maximised,
    certified,
    require_cardinality,
)
from h2o_theory.submodular.set_function import Selection, SetFunction

__all__ = ["greedy", "lazy_greedy", "noisy_greedy"]

_NWF = "Nemhauser, Wolsey, Fisher 1978: monotone submodular, f(empty) = 0"


def greedy(function: SetFunction, size: int) -> Maximised:
    """Add the element of the largest marginal gain, k times.

    Parameters
    ----------
    function : SetFunction
    size : int
        k, 1 .. n. k elements are chosen even if the last gains are 0.

    Returns
    -------
    Maximised
        Guarantee ``1 - (1 - 1/k)^k`` where f is declared monotone, submodular and normalised.

    Raises
    ------
    BadBudget
        ``size`` is out of range.

    Notes
    -----
    k n gains.
    """
    size = require_cardinality(size, function)
    selection, evaluations = function.select(), 0
    for _ in range(size):
        candidates = selection.outside()
        selection.add(candidates[selection.gains(candidates).argmax()])
        evaluations += candidates.size
    return certified(
        selection,
        size,
        "greedy",
        evaluations,
        guarantee=ApproximationGuarantee(greedy_factor(size), _NWF),
    )


def lazy_greedy(function: SetFunction, size: int) -> Maximised:
    """:func:`greedy` that computes a gain anew only when an outdated one could still be largest.

    Gains of a submodular function never grow, so an outdated gain is an upper bound: if the
    gain of the foremost candidate, computed anew, stays foremost, no other needs to be looked at.

    Parameters
    ----------
    function : SetFunction
        Declared submodular.
    size : int
        k, 1 .. n.

    Returns
    -------
    Maximised
        The members of :func:`greedy` in the same order, up to ties within rounding.

    Raises
    ------
    BadArgument
        ``function`` is not declared submodular, so that outdated gains bound nothing.
    BadBudget
        ``size`` is out of range.

    Notes
    -----
    k n gains at worst; on facility location and attention rows 1 to 5 % of them.

    Source: Minoux 1978.

    Examples
    --------
    >>> from h2o_theory.submodular import coverage
    >>> found = lazy_greedy(coverage([[0, 1], [1, 2], [3]], 4), 2)
    >>> found.members, found.value, found.upper
    ((0, 1), 3.0, 4.0)
    """
    size = require_cardinality(size, function)
    if not function.properties.submodular:
        raise BadArgument(
            "function must be declared submodular for lazy greedy",
            got=repr(function),
            hint="Use greedy, or declare it submodular if it is.",
        )
    selection = function.select()
    gains = selection.gains(selection.outside()).tolist()
    queue = [(-gain, j, 0) for j, gain in enumerate(gains)]
    heapify(queue)
    evaluations = len(queue)
    for step in range(size):
        _, j, computed_at = heappop(queue)
        while computed_at < step:
            heappush(queue, (-selection.gain(j), j, step))
            evaluations += 1
            _, j, computed_at = heappop(queue)
        selection.add(j)
    return certified(
        selection,
        size,
        "lazy greedy",
        evaluations,
        guarantee=ApproximationGuarantee(greedy_factor(size), _NWF),
    )


def noisy_greedy(
    function: SetFunction,
    size: int,
    oracle: Callable[[FloatArray, IntArray, Selection], ArrayLike],
    noise: float,
) -> Maximised:
    """Greedy that sees each marginal gain only up to an additive error.

    Parameters
    ----------
    function : SetFunction
        The exact function; value and bound of the result are exact.
    size : int
        k, 1 .. n.
    oracle : callable
        ``oracle(gains, candidates, selection)`` returns what is seen in place of the true gains,
        float64 of the same length.
    noise : float
        The largest error allowed; an oracle that errs more is refused.

    Returns
    -------
    Maximised
        Guarantee ``(1 - q) OPT - 2 k noise (1 - q)``, ``q = (1 - 1/k)^k``: see
        :func:`noisy_greedy_bound`.

    Raises
    ------
    BadArgument
        The oracle errs by more than ``noise``, or returns something else.
    BadBudget
        ``size`` is out of range.
    """
    size = require_cardinality(size, function)
    selection, evaluations = function.select(), 0
    for step in range(size):
        candidates = selection.outside()
        gains = selection.gains(candidates)
        seen = np.asarray(oracle(gains.copy(), candidates, selection), dtype=np.float64)
        error = np.abs(seen - gains).max() if seen.shape == gains.shape else np.nan
        if not error <= noise * (1 + 1e-9) + 1e-15:
            raise BadArgument(
                f"the oracle errs: its {candidates.size} gains must be right up to {noise}",
                where=f"step {step}",
                got=f"an error of {error}",
            )
        selection.add(candidates[seen.argmax()])
        evaluations += candidates.size
    factor = greedy_factor(size)
    promise = ApproximationGuarantee(
        factor, f"{_NWF}; noise by induction", loss=2 * size * noise * factor
    )
    return certified(selection, size, "noisy greedy", evaluations, guarantee=promise)
