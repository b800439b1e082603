"""The refuter: searches for subsets at which a set function breaks what is declared of it.

All subsets of up to 12 elements are tried; of more, random ones, made worse by hill climbing. What
is not found beyond 12 elements may exist all the same, and the result says how hard was tried.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from h2o_theory.errors import BadArgument
from h2o_theory.optimum.arguments import require_at_least
from h2o_theory.submodular.definitions import DEFINITIONS, all_values, violation_of_sets
from h2o_theory.submodular.set_function import SetFunction
from h2o_theory.submodular.violation_search import ViolationSearch

__all__ = ["EXHAUSTIVE_SIZE", "Counterexample", "Refutation", "refute", "refute_declared"]

EXHAUSTIVE_SIZE = 12
"""Up to this many elements all subsets are tried."""


@dataclass(frozen=True)
class Counterexample:
    """Subsets at which a definition fails, verifiable by hand.

    Attributes
    ----------
    definition : str
    first, second : tuple of int
        X and Y, ascending; the same where the definition has one set.
    element : int or None
        j.
    values : dict of str to float
        What the definition compares, by name.
    excess : float
        By how much it fails.
    """

    definition: str
    first: tuple
    second: tuple
    element: int | None
    values: dict
    excess: float

    def __str__(self) -> str:
        where = f"X = {set(self.first) or '{}'}"
        if self.second != self.first:
            where += f", Y = {set(self.second) or '{}'}"
        if self.element is not None:
            where += f", j = {self.element}"
        worth = ", ".join(f"{name} = {value:.6g}" for name, value in self.values.items())
        return f"{self.definition} fails by {self.excess:.6g} at {where}: {worth}"


@dataclass(frozen=True)
class Refutation:
    """What a search for violations of one property found.

    Attributes
    ----------
    property : str
        ``normalised``, ``monotone``, ``submodular`` or ``modular``.
    definition : str
        In which of its forms.
    counterexample : Counterexample or None
        The worst case found; None if none breaks the definition.
    exhaustive : bool
        All subsets were tried: without counterexample, the property is proved (up to
        ``tolerance``).
    evaluations : int
        Values of f that were computed.
    """

    property: str
    definition: str
    counterexample: Counterexample | None
    exhaustive: bool
    evaluations: int

    def __str__(self) -> str:
        if self.counterexample:
            return f"not {self.property}: {self.counterexample}"
        how = "all subsets" if self.exhaustive else f"{self.evaluations} random evaluations"
        return f"{self.property} ({self.definition}): none found in {how}"


def refute(
    function: SetFunction,
    property: str,
    definition: str | None = None,
    *,
    trials: int = 400,
    tolerance: float = 1e-9,
    rng: np.random.Generator | None = None,
) -> Refutation:
    """Search for a case at which a property fails.

    Parameters
    ----------
    function : SetFunction
    property : str
        ``normalised``, ``monotone``, ``submodular`` or ``modular``.
    definition : str, optional
        Which form of it, a key of ``DEFINITIONS[property]``: for ``submodular`` ``"two elements"``
        (default), ``"diminishing returns"`` or ``"lattice"``.
    trials : int
        Beyond 12 elements, random cases to start from; hill climbing follows from the worst ten.
    tolerance : float
        Violations up to this, relative to the largest value compared, count as rounding.
    rng : numpy.random.Generator, optional
        A fixed seed by default.

    Returns
    -------
    Refutation
        With the largest violation there is (exhaustive), or that was met.

    Raises
    ------
    BadArgument
        There is no such property or definition.

    Notes
    -----
    Exhaustive: 2^n values, then O(n^2 2^n) (lattice: O(4^n)): a second at n = 12.

    Examples
    --------
    >>> from h2o_theory.submodular import set_function
    >>> print(refute(set_function(lambda chosen: len(chosen) ** 2, 3), "submodular"))
    not submodular: two elements fails by 2 at X = {}, Y = {1}, j = 2: f(X) = 0, f(X + j) = 1, \
    f(Y) = 1, f(Y + j) = 4
    """
    definition = _require_definition(property, definition)
    if function.size <= EXHAUSTIVE_SIZE:
        table = all_values(function)
        _, (first, second, element) = DEFINITIONS[property][definition](table)
        case = _bits(first), _bits(second), element
        evaluations, exhaustive = len(table), True
        scale = float(np.abs(table).max())
    else:
        search = ViolationSearch(function, definition, rng or np.random.default_rng(0))
        case = search.run(require_at_least(trials, 1, "trials"))
        evaluations, exhaustive, scale = search.evaluations, False, 0.0
    first, second, element = case
    element = None if element < 0 else int(element)
    values, excess = violation_of_sets(function, definition, first, second, element)
    scale = max([scale, *map(abs, values.values())])
    counterexample = None
    if excess > tolerance * max(scale, np.finfo(float).tiny):
        counterexample = Counterexample(
            definition, tuple(sorted(first)), tuple(sorted(second)), element, values, excess
        )
    return Refutation(property, definition, counterexample, exhaustive, evaluations)


def refute_declared(function: SetFunction, **options: Any) -> tuple[Refutation, ...]:
    """:func:`refute` every declared property in every definition; a tuple of Refutations."""
    return tuple(
        refute(function, property, definition, **options)
        for property in function.properties.declared()
        for definition in DEFINITIONS[property]
    )


def _require_definition(property: str, definition: str | None) -> str:
    """The definition to search, or a named refusal."""
    if property not in DEFINITIONS:
        raise BadArgument("property must be one of " + ", ".join(DEFINITIONS), got=property)
    forms = DEFINITIONS[property]
    if definition is not None and definition not in forms:
        raise BadArgument(
            f"definition of {property} must be one of " + ", ".join(forms), got=definition
        )
    return definition or next(iter(forms))


def _bits(mask: int) -> set[int]:
    return {j for j in range(mask.bit_length()) if mask >> j & 1}
