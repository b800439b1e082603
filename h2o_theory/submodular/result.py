"""What every maximiser returns: a set, its value, an upper bound, and what was promised of it."""

from dataclasses import dataclass

import numpy as np

from h2o_theory.errors import BadBudget
from h2o_theory.optimum.arguments import require_integer
from h2o_theory.submodular.bounds import online_bound
from h2o_theory.submodular.set_function import Selection, SetFunction

__all__ = ["ApproximationGuarantee", "Maximised", "certified", "require_cardinality"]


@dataclass(frozen=True)
class ApproximationGuarantee:
    """A promise made before the run: ``f(S) >= factor * OPT - loss``.

    Attributes
    ----------
    factor : float
    source : str
        Where it is proved, and under which assumptions.
    loss : float
    """

    factor: float
    source: str
    loss: float = 0.0


@dataclass(frozen=True)
class Maximised:
    """A set of at most k elements found by a maximiser.

    Attributes
    ----------
    members : tuple of int
        In the order they were chosen.
    value : float
        f of them.
    upper : float
        No set of at most k elements is worth more; infinite where f is not declared monotone and
        submodular and nothing else proves a bound.
    guarantee : ApproximationGuarantee or None
        None where none is known.
    method : str
    size : int
        k.
    evaluations : int
        Values or marginal gains computed by the method, not by its bound.
    stored : int
        Most elements held at one time; k + 1 for a KV cache while a token arrives.
    """

    members: tuple
    value: float
    upper: float
    guarantee: ApproximationGuarantee | None
    method: str
    size: int
    evaluations: int
    stored: int

    @property
    def certified_ratio(self) -> float:
        """``value / upper``: f(S) is at least this share of the optimum; 0 if nothing is proved."""
        if self.upper == self.value:
            return 1.0
        return max(self.value, 0.0) / self.upper if np.isfinite(self.upper) else 0.0


def certified(
    selection: Selection,
    size: int,
    method: str,
    evaluations: int,
    *,
    guarantee: ApproximationGuarantee | None = None,
    stored: int | None = None,
) -> Maximised:
    """A :class:`Maximised` of a finished selection, with the online bound where it holds.

    The bound is the lesser of those at the selection and at the empty set: the latter is exact for
    a modular f. ``guarantee`` is dropped where f is not declared monotone, submodular and
    normalised, which all of them assume.
    """
    properties, upper = selection.function.properties, np.inf
    if properties.monotone and properties.submodular:
        empty = selection.function.select()
        upper = min(online_bound(selection, size), online_bound(empty, size))
    if not (properties.monotone and properties.submodular and properties.normalised):
        guarantee = None
    return Maximised(
        tuple(selection.members),
        selection.value,
        max(upper, selection.value),
        guarantee,
        method,
        size,
        int(evaluations),
        len(selection.members) if stored is None else stored,
    )


def require_cardinality(size: int, function: SetFunction) -> int:
    """k in 1 .. n."""
    size = require_integer(size, "size")
    if not 1 <= size <= function.size:
        raise BadBudget(f"size must be 1 to {function.size} elements", got=size)
    return size
