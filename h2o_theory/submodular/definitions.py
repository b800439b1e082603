"""The definitions that a set function may break, each as the largest violation over all subsets.

A subset of n elements is a bit mask, and ``table[mask]`` its value. The three definitions of
submodularity (Definition D.1 of the H2O paper) are equivalent; each is searched on its own terms.
"""

from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from h2o_theory.annotations import FloatArray, IntArray
from h2o_theory.submodular.set_function import Properties, SetFunction

__all__ = ["DEFINITIONS", "all_values", "violation_of_sets"]


Case: TypeAlias = tuple[float, tuple[int, int, int]]
"""``(excess, (X, Y, j))``: by how much the worst case breaks a definition, and the case."""


def all_values(function: SetFunction) -> FloatArray:
    """float64 [2^n]: the value of every subset, by bit mask."""
    size = function.size
    return np.array(
        [function.value([j for j in range(size) if mask >> j & 1]) for mask in range(1 << size)],
        dtype=np.float64,
    )


def empty_set(table: FloatArray) -> Case:
    """f(empty set) = 0; the violation is its distance from 0."""
    return abs(float(table[0])), (0, 0, -1)


def growth(table: FloatArray) -> Case:
    """f(X + j) >= f(X)."""
    return _worst(_losses(table))


def diminishing_returns(table: FloatArray) -> Case:
    """f(X + j) - f(X) >= f(Y + j) - f(Y) for X in Y, j not in Y.

    For each j the largest gain over the supersets of X comes from a transform that passes maxima
    from Y to Y without one element: O(n 2^n), O(n^2 2^n) for all j.
    """
    return _worst(_superset_excess(table))


def lattice(table: FloatArray) -> Case:
    """f(X) + f(Y) >= f(X | Y) + f(X & Y). O(4^n)."""
    return _worst(_lattice_excess(table))


def two_elements(table: FloatArray) -> Case:
    """f(X + a) + f(X + b) >= f(X + a + b) + f(X); Y is X + a. O(n^2 2^n)."""
    return _worst(_pair_excess(table, 1.0))


def equal_returns(table: FloatArray) -> Case:
    """f(X + a) + f(X + b) = f(X + a + b) + f(X); Y is X + a. O(n^2 2^n)."""
    over, under = _pair_excess(table, 1.0), _pair_excess(table, -1.0)
    return max(_worst(over), _worst(under))


DEFINITIONS = MappingProxyType(
    {
        "normalised": MappingProxyType({"empty set": empty_set}),
        "monotone": MappingProxyType({"growth": growth}),
        "submodular": MappingProxyType(
            {
                "two elements": two_elements,
                "diminishing returns": diminishing_returns,
                "lattice": lattice,
            }
        ),
        "modular": MappingProxyType({"equal returns": equal_returns}),
    }
)
"""Property -> definition -> function of a table; the first definition is the default.

Each returns ``(excess, (X, Y, j))``: by how much the worst case breaks the definition, negative or
zero if none does, and the case; j is -1 where the definition has no element, and Y is X where it
has one set.
"""
assert set(DEFINITIONS) == set(Properties.__dataclass_fields__)


def _worst(cases: Iterable[Case]) -> Case:
    """The largest excess of an iterable of ``(excess, (X, Y, j))``; 0 if there is no case."""
    return max(cases, default=(0.0, (0, 0, -1)))


def _without(size: int, *elements: int) -> IntArray:
    """Masks of all subsets that hold none of the given elements."""
    masks = np.arange(1 << size)
    return masks[(masks & sum(1 << j for j in elements)) == 0]


def _size(table: FloatArray) -> int:
    return len(table).bit_length() - 1


def _losses(table: FloatArray) -> Iterator[Case]:
    size = _size(table)
    for j in range(size):
        base = _without(size, j)
        loss = table[base] - table[base | 1 << j]
        at = int(loss.argmax())
        yield float(loss[at]), (int(base[at]), int(base[at]), j)


def _superset_excess(table: FloatArray) -> Iterator[Case]:
    size = _size(table)
    for j in range(size):
        base = _without(size, j)
        gain = np.full(1 << size, -np.inf)
        gain[base] = table[base | 1 << j] - table[base]
        most, where = gain.copy(), np.arange(1 << size)
        for other in range(size):
            smaller = _without(size, other)
            larger = smaller | 1 << other
            better = most[larger] > most[smaller]
            most[smaller] = np.where(better, most[larger], most[smaller])
            where[smaller] = np.where(better, where[larger], where[smaller])
        excess = most[base] - gain[base]
        at = int(excess.argmax())
        yield float(excess[at]), (int(base[at]), int(where[base[at]]), j)


def _lattice_excess(table: FloatArray) -> Iterator[Case]:
    masks = np.arange(len(table))
    for mask in masks:
        excess = table[mask | masks] + table[mask & masks] - table[mask] - table
        at = int(excess.argmax())
        yield float(excess[at]), (int(mask), at, -1)


def _pair_excess(table: FloatArray, sign: float) -> Iterator[Case]:
    size = _size(table)
    for a in range(size):
        for b in range(a + 1, size):
            base = _without(size, a, b)
            with_a, with_b = base | 1 << a, base | 1 << b
            excess = sign * (table[with_a | with_b] + table[base] - table[with_a] - table[with_b])
            at = int(excess.argmax())
            yield float(excess[at]), (int(base[at]), int(with_a[at]), b)


def violation_of_sets(
    function: SetFunction,
    definition: str,
    first: Iterable[int],
    second: Iterable[int],
    element: int | None,
) -> tuple[dict[str, float], float]:
    """The values a definition compares at one case, by name, and by how much they break it.

    Parameters
    ----------
    function : SetFunction
    definition : str
    first, second : set of int
        X and Y.
    element : int or None
        j; None where there is none, as on a ground set too small for the definition.

    Returns
    -------
    values : dict of str to float
    excess : float
        Above 0: broken.
    """
    first, second = set(first), set(second)
    if element is None and definition not in ("empty set", "lattice"):
        return {}, 0.0
    if definition == "empty set":
        values = {"f(empty)": first}
    elif definition == "growth":
        values = {"f(X)": first, "f(X + j)": first | {element}}
    elif definition == "lattice":
        values = {"f(X)": first, "f(Y)": second}
        values |= {"f(X | Y)": first | second, "f(X & Y)": first & second}
    else:
        values = {"f(X)": first, "f(X + j)": first | {element}}
        values |= {"f(Y)": second, "f(Y + j)": second | {element}}
    values = {name: float(function.value(sorted(members))) for name, members in values.items()}
    worth = list(values.values())
    if definition == "empty set":
        return values, abs(worth[0])
    if definition == "growth":
        return values, worth[0] - worth[1]
    if definition == "lattice":
        return values, worth[2] + worth[3] - worth[0] - worth[1]
    excess = (worth[3] - worth[2]) - (worth[1] - worth[0])
    return values, abs(excess) if definition == "equal returns" else excess
