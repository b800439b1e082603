"""Upper bounds on the best set from any set, curvature, and the factors greedy is sure to reach."""

from collections.abc import Iterable

import numpy as np

from h2o_theory.errors import BadArgument
from h2o_theory.optimum.arguments import require_at_least
from h2o_theory.submodular.arguments import require_members
from h2o_theory.submodular.set_function import Selection, SetFunction

__all__ = [
    "curvature_factor",
    "greedy_factor",
    "noisy_greedy_bound",
    "online_bound",
    "prefix_bound",
    "total_curvature",
]


def online_bound(selection: Selection, size: int) -> float:
    r"""An upper bound on every set of at most k elements, from any set S however obtained.

    .. math:: \mathrm{OPT}_k \le f(S) + \sum \text{ of the } k \text{ largest } f(j \mid S)

    Proof. For the best O, by monotonicity and diminishing returns,
    f(O) <= f(S + O) <= f(S) + sum over O \ S of f(j | S).

    Parameters
    ----------
    selection : Selection
        S, of a function declared monotone and submodular. It may have any number of members.
    size : int
        k, at least 1.

    Returns
    -------
    float
        Up to rounding. One gain for each element outside S.

    Raises
    ------
    BadArgument
        The function is not declared so, or ``size`` is below 1.

    Notes
    -----
    Source: Minoux 1978; Leskovec et al. 2007 (CELF).
    """
    _require_declared(selection.function)
    size = require_at_least(size, 1, "size")
    gains = np.maximum(selection.gains(selection.outside()), 0.0)
    first = max(gains.size - size, 0)
    largest = np.partition(gains, first)[first:] if first else gains
    return float(selection.value + largest.sum())


def prefix_bound(function: SetFunction, order: Iterable[int], size: int) -> float:
    """The least :func:`online_bound` over all prefixes of an order of elements, tighter than one.

    Parameters
    ----------
    function : SetFunction
        Declared monotone and submodular.
    order : sequence of int
        Distinct elements, for example ``members`` of a greedy run.
    size : int
        k.

    Returns
    -------
    float
        At most (n - i) gains for each prefix of i elements, from none to all.

    Raises
    ------
    BadArgument
        The function is not declared so, or ``order`` is no list of its elements.
    """
    _require_declared(function)
    order = require_members(order, function.size, "order")
    selection = function.select()
    best = online_bound(selection, size)
    for j in order:
        selection.add(j)
        best = min(best, online_bound(selection, size))
    return best


def greedy_factor(size: int) -> float:
    """``1 - (1 - 1/k)^k``, above 1 - 1/e: greedy on monotone submodular f with f(empty) = 0.

    Source: Nemhauser, Wolsey, Fisher 1978.

    Examples
    --------
    >>> greedy_factor(2)
    0.75
    """
    size = require_at_least(size, 1, "size")
    return 1.0 - (1.0 - 1.0 / size) ** size


def total_curvature(function: SetFunction) -> float:
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


def curvature_factor(curvature: float, size: int) -> float:
    """``(1 - (1 - c/k)^k) / c``, and 1 for c = 0: greedy at total curvature c.

    Source: Conforti, Cornuejols 1984.
    """
    size = require_at_least(size, 1, "size")
    _require_share(curvature, "curvature")
    if curvature == 0:
        return 1.0
    # expm1 and log1p: the difference from 1 is lost in rounding where c is tiny.
    inner = np.log1p(-curvature / size) if curvature < size else -np.inf
    return float(-np.expm1(size * inner) / curvature)


def noisy_greedy_bound(optimum: float, size: int, noise: float) -> float:
    """What greedy reaches at least when each marginal gain it sees is wrong by up to ``noise``.

    ``f(S) >= (1 - q) OPT - 2 k noise (1 - q)``, ``q = (1 - 1/k)^k``.

    Proof. The element picked has a true gain of at least the best one less twice the noise, hence
    ``OPT - f_{i+1} <= (1 - 1/k)(OPT - f_i) + 2 noise``; k times over, the noise sums to
    ``2 noise (1 + (1-1/k) + ... + (1-1/k)^(k-1)) = 2 noise k (1 - q)``. Reached: k elements of
    worth 2 noise each beside k of worth 0 can all look the same.

    Parameters
    ----------
    optimum : float
        OPT of the exact function, or a lower bound on it.
    size : int
        k.
    noise : float
        At least 0; of one marginal gain, absolute.

    Returns
    -------
    float

    Examples
    --------
    >>> round(noisy_greedy_bound(10.0, 2, 0.1), 6)
    7.2
    """
    if not noise >= 0:
        raise BadArgument("noise must be at least 0", got=noise)
    return greedy_factor(size) * (optimum - 2.0 * size * noise)


def _require_declared(function: SetFunction) -> None:
    if not (function.properties.monotone and function.properties.submodular):
        raise BadArgument(
            "function must be declared monotone and submodular for the online bound",
            got=repr(function),
        )


def _require_share(number: float, name: str) -> None:
    if not 0 <= number <= 1:
        raise BadArgument(f"{name} must be 0 to 1", got=number)
    return number


def _require_submodular(function: SetFunction) -> None:
    if not function.properties.submodular:
        raise BadArgument(
            "function must be declared submodular to have a curvature", got=repr(function)
        )
