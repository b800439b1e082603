"""The exact best set by looking at all of them."""

from collections.abc import Iterator
from math import comb

import numpy as np

from h2o_theory.errors import BadArgument
from h2o_theory.submodular.result import ApproximationGuarantee, Maximised, require_cardinality
from h2o_theory.submodular.set_function import SetFunction

__all__ = ["MOST_SETS", "exhaustive_maximum"]

MOST_SETS = 2_000_000
"""More sets than this are refused."""


def exhaustive_maximum(function: SetFunction, size: int) -> Maximised:
    """The best set of at most k elements, whatever f is.

    Parameters
    ----------
    function : SetFunction
        Nothing that is declared of it is used.
    size : int
        k, 1 .. n.

    Returns
    -------
    Maximised
        ``upper`` is its value: optimal.

    Raises
    ------
    BadArgument
        There are more than two million sets of at most k elements.
    BadBudget
        ``size`` is out of range.

    Notes
    -----
    One gain for each set, computed together for all sets that differ in the last element.
    """
    size = require_cardinality(size, function)
    sets = sum(comb(function.size, i) for i in range(size + 1))
    if sets > MOST_SETS:
        raise BadArgument(
            f"exhaustive_maximum looks at {MOST_SETS} sets at most: there are too many sets",
            got=sets,
            hint="Use greedy with its bound.",
        )
    best = function.select()
    value, members = best.value, ()
    for prefix in _prefixes(function, size):
        selection = function.select(prefix)
        candidates = np.arange(prefix[-1] + 1 if prefix else 0, function.size)
        if not candidates.size:
            continue
        gains = selection.gains(candidates)
        at = int(gains.argmax())
        if selection.value + gains[at] > value:
            value, members = selection.value + gains[at], (*prefix, int(candidates[at]))
    selection = function.select(members)
    source = "all sets were looked at"
    return Maximised(
        members,
        selection.value,
        selection.value,
        ApproximationGuarantee(1.0, source),
        "exhaustive",
        size,
        sets,
        function.size,
    )


def _prefixes(function: SetFunction, size: int) -> Iterator[tuple[int, ...]]:
    """All ascending tuples of fewer than k elements, the empty one first."""
    stack = [()]
    while stack:
        prefix = stack.pop()
        yield prefix
        if len(prefix) + 1 < size:
            first = prefix[-1] + 1 if prefix else 0
            stack += [(*prefix, j) for j in range(function.size - 1, first - 1, -1)]
