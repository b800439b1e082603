"""A set function: values of subsets of ``0 .. n-1``, what is declared of it, and a growing set.

Maximisers and certificates see nothing but this protocol. A function that can update marginal gains
quicker than by two evaluations overrides :meth:`SetFunction.select`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike

from h2o_theory.annotations import FloatArray, IntArray

__all__ = ["Properties", "Selection", "SetFunction"]


@dataclass(frozen=True)
class Properties:
    """What is declared of a set function; :func:`refute` tries to find it wrong.

    Attributes
    ----------
    normalised : bool
        f(empty set) = 0.
    monotone : bool
        f(X + j) >= f(X).
    submodular : bool
        f(X + j) - f(X) >= f(Y + j) - f(Y) whenever X is a subset of Y without j.
    modular : bool
        Equality there; implies submodular.
    """

    normalised: bool = False
    monotone: bool = False
    submodular: bool = False
    modular: bool = False

    def declared(self) -> tuple[str, ...]:
        """Names of the declared properties, in order."""
        return tuple(field.name for field in fields(self) if getattr(self, field.name))


class SetFunction:
    """f on subsets of ``0 .. size-1``; subclasses override :meth:`value` and may :meth:`select`.

    Attributes
    ----------
    name : str
    size : int
        n, the number of elements.
    properties : Properties
    """

    def __init__(self, name: str, size: int, properties: Properties) -> None:
        self.name, self.size, self.properties = name, size, properties

    def __repr__(self) -> str:
        declared = ", ".join(self.properties.declared()) or "nothing declared"
        return f"<{self.name} on {self.size} elements: {declared}>"

    def value(self, members: Iterable[int]) -> float:
        """f of a collection of distinct elements, float."""
        raise NotImplementedError

    def select(self, members: Iterable[int] = ()) -> "Selection":
        """A :class:`Selection` that starts from the given elements."""
        return Selection(self, members)


class Selection:
    """A set that grows and shrinks one element at a time, and what each change is worth.

    This one evaluates f anew for every gain; subclasses keep what they need between changes.

    Attributes
    ----------
    function : SetFunction
    members : list of int
        In the order they were added.
    value : float
        f of the members.
    """

    def __init__(self, function: SetFunction, members: Iterable[int] = ()) -> None:
        self.function, self.members = function, []
        self.value = float(function.value([]))
        for j in members:
            self.add(j)

    def outside(self) -> IntArray:
        """The elements that are not members, int64, ascending."""
        free = np.ones(self.function.size, dtype=bool)
        free[self.members] = False
        return np.flatnonzero(free)

    def gain(self, j: int) -> float:
        """f(S + j) - f(S) of one element outside."""
        return self.function.value([*self.members, j]) - self.value

    def gains(self, candidates: ArrayLike) -> FloatArray:
        """The gains of several elements outside, float64."""
        return np.array([self.gain(int(j)) for j in candidates], dtype=np.float64)

    def losses(self) -> FloatArray:
        """f(S) - f(S - u) for each member u, float64, in the order of ``members``."""
        rest = [[u for u in self.members if u != gone] for gone in self.members]
        return np.array([self.value - self.function.value(others) for others in rest])

    def add(self, j: int) -> None:
        """Make j a member."""
        self.members.append(int(j))
        self.value = float(self.function.value(self.members))

    def drop(self, j: int) -> None:
        """Make j no member."""
        self.members.remove(j)
        self.value = float(self.function.value(self.members))
