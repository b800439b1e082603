"""Local search: exchange one member for one outsider while that helps."""

import numpy as np

from h2o_theory.errors import BadArgument
from h2o_theory.optimum.arguments import require_at_least
from h2o_theory.submodular.arguments import require_members
from h2o_theory.submodular.result import Guarantee, certified, require_cardinality

__all__ = ["local_search"]

# An exchange has to gain more than this, relative to f(S), or rounding could go round in circles.
_ROUNDING = 1e-12


def local_search(function, size, *, start=None, rounds=10_000):
    """Make the best exchange of one member until none raises f.

    Parameters
    ----------
    function : SetFunction
    size : int
        k, 1 .. n.
    start : collection of int, optional
        k elements to start from; the k first by default.
    rounds : int
        Exchanges at most, at least 1.

    Returns
    -------
    Maximised
        Guarantee ``k / (2k - 1)`` if no exchange is left to make, none if rounds ran out.

    Raises
    ------
    BadBudget
        ``size`` is out of range.
    BadArgument
        ``start`` is not k distinct elements.

    Notes
    -----
    k (n - k) values a round. An order of attempts that takes few rounds is to start from greedy.

    Source: Nemhauser, Wolsey, Fisher 1978, interchange.
    """
    size = require_cardinality(size, function)
    rounds = require_at_least(rounds, 1, "rounds")
    start = require_members(range(size) if start is None else start, function.size, "start")
    if len(start) != size:
        raise BadArgument(
            "not enough or too many elements", where="start", got=len(start), expected=size
        )
    selection = function.select(start)
    evaluations, at_optimum = 0, False
    for _ in range(rounds):
        outside = selection.outside()
        changes = np.array([selection.swaps(int(j)) for j in outside]).reshape(-1, size)
        evaluations += changes.size
        if not changes.size or changes.max() <= _ROUNDING * max(abs(selection.value), 1e-300):
            at_optimum = True
            break
        arriving, leaving = np.unravel_index(changes.argmax(), changes.shape)
        selection.drop(selection.members[leaving])
        selection.add(outside[arriving])
    guarantee = None
    if at_optimum:
        source = "Nemhauser, Wolsey, Fisher 1978: local optimum of exchanges"
        guarantee = Guarantee(size / (2 * size - 1), source)
    return certified(selection, size, "local search", evaluations, guarantee=guarantee)
