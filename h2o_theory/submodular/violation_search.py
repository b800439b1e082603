"""Random search for violations of a definition where there are too many subsets to try all."""

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from h2o_theory.submodular.definitions import violation_of_sets
from h2o_theory.submodular.set_function import SetFunction

__all__ = ["ViolationSearch"]


Subsets: TypeAlias = tuple[set[int], set[int], int]
"""X, Y and j of a definition; j is -1 where it has none."""


class ViolationSearch:
    """Random cases of one definition and hill climbing from the worst."""

    def __init__(self, function: SetFunction, definition: str, rng: np.random.Generator) -> None:
        self._function, self._definition, self._rng = function, definition, rng
        self.evaluations = 0

    def run(self, trials: int) -> Subsets:
        cases = sorted((self._draw() for _ in range(trials)), key=self._excess, reverse=True)
        return max(map(self._climb, cases[:10]), key=self._excess)

    def _excess(self, case: Subsets) -> float:
        first, second, element = case
        element = None if element < 0 else element
        values, excess = violation_of_sets(self._function, self._definition, first, second, element)
        self.evaluations += len(values)
        return excess

    def _draw(self) -> Subsets:
        """A random case of the form that the definition has, at a random density."""
        if self._definition == "empty set":
            return set(), set(), -1
        order = self._rng.permutation(self._function.size).tolist()
        a, b, rest = order[0], order[1], order[2:]
        first = set(rest[: self._rng.integers(len(rest) + 1)])
        if self._definition == "growth":
            return first, first, a
        if self._definition == "lattice":
            again = self._rng.permutation(order).tolist()
            return first, set(again[: self._rng.integers(len(order) + 1)]), -1
        if self._definition == "diminishing returns":
            extra = [j for j in rest if j not in first]
            return first, first | {a} | set(extra[: self._rng.integers(len(extra) + 1)]), b
        return first, first | {a}, b

    def _climb(self, case: Subsets) -> Subsets:
        """Change one element at a time while the violation grows."""
        excess = self._excess(case)
        improved = True
        while improved:
            improved = False
            for neighbour in self._neighbours(case):
                found = self._excess(neighbour)
                if found > excess:
                    case, excess, improved = neighbour, found, True
                    break
        return case

    def _neighbours(self, case: Subsets) -> Iterator[Subsets]:
        first, second, element = case
        for i in self._rng.permutation(self._function.size).tolist():
            if i == element or self._definition == "empty set":
                continue
            if self._definition == "lattice":
                yield first ^ {i}, second, element
                yield first, second ^ {i}, element
            elif i in first or i not in second:
                yield first ^ {i}, second ^ {i}, element
                if self._definition == "diminishing returns" and i not in second:
                    yield first, second | {i}, element
