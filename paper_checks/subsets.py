"""Everything small: set functions as arrays, and attention matrices, for exhaustive searches.

A set is a bit mask; a function on n elements is an array of 2**n values; ``[m, 2**n]`` holds m
functions.
"""

import itertools

import numpy as np

__all__ = [
    "all_functions",
    "as_set",
    "coverage_functions",
    "is_monotone",
    "is_submodular",
    "lattice_holds",
    "matrices",
    "modular",
    "pairs_hold",
    "shown",
]


def as_set(mask):
    """The elements of a mask, numbered from 1 as in the paper."""
    return [j + 1 for j in range(mask.bit_length()) if mask >> j & 1]


def shown(values):
    """A function in full, for a counterexample."""
    return {
        "{" + ",".join(map(str, as_set(mask))) + "}": float(value)
        for mask, value in enumerate(values)
    }


def modular(weights):
    """The values of a sum of weights on all subsets."""
    masks = np.arange(2 ** len(weights))
    return ((masks[:, None] >> np.arange(len(weights))) & 1) @ np.asarray(weights)


def all_functions(n, low, high):
    """Every function on n elements with integer values from low to high: int8 [m, 2**n]."""
    size, base = 2**n, high - low + 1
    index = np.arange(base**size)
    digits = [(index // base**power % base + low).astype(np.int8) for power in range(size)]
    return np.stack(digits, axis=1)


def coverage_functions(n, weights=(0, 1)):
    """Every weighted coverage function on n sets whose universe has one point per non-empty type.

    The point of type t lies in the sets of the mask t; its weight is one of ``weights``.
    """
    types = np.arange(1, 2**n)
    covered = (np.arange(2**n)[:, None] & types) != 0
    choices = np.array(list(itertools.product(weights, repeat=len(types))), dtype=np.int16)
    return choices @ covered.T.astype(np.int16)


def _n(functions):
    return functions.shape[1].bit_length() - 1


def is_monotone(functions):
    """bool [m]: f(S + j) >= f(S)."""
    masks = np.arange(functions.shape[1])
    good = np.ones(len(functions), dtype=bool)
    for j in range(_n(functions)):
        without = masks[masks >> j & 1 == 0]
        good &= (functions[:, without | 1 << j] >= functions[:, without]).all(axis=1)
    return good


def is_submodular(functions):
    """bool [m]: diminishing returns, f(S + j) - f(S) >= f(T + j) - f(T) for S in T, j not in T."""
    size = functions.shape[1]
    good = np.ones(len(functions), dtype=bool)
    for small, large in itertools.product(range(size), repeat=2):
        if small & large == small:
            for j in range(_n(functions)):
                if not large >> j & 1:
                    bit = 1 << j
                    gain = functions[:, small | bit].astype(float) - functions[:, small]
                    good &= gain >= functions[:, large | bit].astype(float) - functions[:, large]
    return good


def lattice_holds(functions):
    """bool [m]: f(S) + f(T) >= f(S or T) + f(S and T)."""
    good = np.ones(len(functions), dtype=bool)
    wide = functions.astype(float)
    for first, second in itertools.combinations(range(functions.shape[1]), 2):
        both = wide[:, first | second] + wide[:, first & second]
        good &= wide[:, first] + wide[:, second] >= both
    return good


def pairs_hold(functions):
    """bool [m]: f(S + a) + f(S + b) >= f(S + a + b) + f(S) for a, b outside S."""
    good = np.ones(len(functions), dtype=bool)
    wide = functions.astype(float)
    for mask in range(functions.shape[1]):
        for a, b in itertools.combinations(range(_n(functions)), 2):
            if not mask & (1 << a | 1 << b):
                apart = wide[:, mask | 1 << a] + wide[:, mask | 1 << b]
                good &= apart >= wide[:, mask | 1 << a | 1 << b] + wide[:, mask]
    return good


def matrices(n, parts):
    """All causal matrices [n, n] of non-negative integers whose rows sum to ``parts``."""
    rows = []
    for i in range(1, n + 1):
        entries = itertools.product(range(parts + 1), repeat=i)
        rows.append([row + (0,) * (n - i) for row in entries if sum(row) == parts])
    for chosen in itertools.product(*rows):
        yield np.array(chosen)
