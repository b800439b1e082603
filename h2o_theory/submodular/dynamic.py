r"""Functions that change while a cache works: ``F(Z, t, Y)``, and the best value of a step.

At step t, token t arrives, its query sees Z and t, and Y is what stays: Z = R_{t-1}, Y = R_t. In
the H2O paper this is :math:`f_{S_i, i}(S_{i+1})` with i = t + 1, S_i = R_{t-1}, S_{i+1} = R_t; its
k is the most entries that *stay*, one less than the budget here, which counts the query's own.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import comb

import numpy as np

from h2o_theory.errors import BadArgument
from h2o_theory.submodular.arguments import require_size
from h2o_theory.submodular.set_function import Properties, SetFunction
from h2o_theory.submodular.user_function import set_function

__all__ = ["Best", "DynamicFunction", "dynamic_function"]

# Pairs (X, Y) that the best value of a step may be searched among, when all are.
_MOST_PAIRS = 1 << 20


@dataclass(frozen=True, eq=False)
class Best:
    """Bounds on the best value of a step, opt_i of Definition D.27.

    Attributes
    ----------
    lower : float
        Reached by ``cache`` and ``members``.
    upper : float
        Nothing allowed exceeds it.
    cache, members : numpy.ndarray of int64
        X and Y: at most k elements each, at most one of Y outside X.
    """

    lower: float
    upper: float
    cache: np.ndarray
    members: np.ndarray

    @property
    def exact(self) -> bool:
        """Whether both bounds are the same number."""
        return self.lower == self.upper


class DynamicFunction:
    """``F(Z, t, .)`` for t = 0 .. tokens-1: a set function of the tokens ``0 .. t``.

    Attributes
    ----------
    name : str
    tokens : int
        T.
    """

    def __init__(self, name: str, tokens: int) -> None:
        self.name, self.tokens = name, tokens

    def __repr__(self) -> str:
        return f"<{self.name} over {self.tokens} tokens>"

    def at(self, cache: Iterable[int], step: int) -> SetFunction:
        """``F(cache, step, .)`` as a :class:`SetFunction` on ``0 .. step``."""
        raise NotImplementedError

    def value(self, cache: Iterable[int], step: int, members: Iterable[int]) -> float:
        """``F(cache, step, members)``."""
        return float(self.at(cache, step).value(members))

    def best(self, step: int, size: int) -> Best:
        r"""The best value of a step: opt_i of Definition D.27 of the H2O paper.

        .. math:: \max \{ F(X, t, Y) : X \subseteq \{0..t-1\},\ Y \subseteq \{0..t\},
                  \ |X|, |Y| \le k,\ |Y \setminus X| \le 1 \}

        Parameters
        ----------
        step : int
            t.
        size : int
            k of the paper: most entries retained.

        Returns
        -------
        Best
            Here by looking at all pairs.

        Raises
        ------
        BadArgument
            There are more than about a million pairs.
        """
        caches = sum(comb(step, i) for i in range(size + 1))
        if caches * (2 + step) << min(size, step) > _MOST_PAIRS:
            raise BadArgument(
                f"{self.name} has too many pairs of sets to look at in step {step}",
                got=f"{caches} caches of at most {size} tokens",
                hint="Use a reading that knows its best value.",
            )
        best = (-np.inf, (), ())
        for cache in _subsets(step, size):
            function = self.at(cache, step)
            for members in _successors(cache, step, size):
                value = float(function.value(members))
                if value > best[0]:
                    best = (value, cache, members)
        value, cache, members = best
        return Best(value, value, np.array(cache, dtype=int), np.array(members, dtype=int))


def _subsets(count: int, size: int) -> list[tuple[int, ...]]:
    """All subsets of ``0 .. count-1`` of at most ``size`` elements, as tuples."""
    masks = np.arange(1 << count)
    masks = masks[np.bitwise_count(masks) <= size]
    return [tuple(j for j in range(count) if mask >> j & 1) for mask in masks.tolist()]


def _successors(cache: tuple[int, ...], step: int, size: int) -> Iterator[tuple[int, ...]]:
    """Sets of at most ``size`` tokens up to ``step`` with at most one outside the cache."""
    for mask in range(1 << len(cache)):
        kept = tuple(j for i, j in enumerate(cache) if mask >> i & 1)
        yield kept
        if len(kept) < size:
            for j in range(step + 1):
                if j not in cache:
                    yield (*kept, j)


class _CallableDynamic(DynamicFunction):
    """A dynamic function that the user wrote."""

    def __init__(
        self, function: Callable[..., float], name: str, tokens: int, properties: Properties
    ) -> None:
        super().__init__(name, tokens)
        self._function: Callable = function
        self._properties = properties

    def at(self, cache: Iterable[int], step: int) -> SetFunction:
        held = frozenset(cache)
        declared = dict.fromkeys(self._properties.declared(), True)
        return set_function(
            lambda members: self._function(held, step, members),
            step + 1,
            name=f"{self.name} at step {step}",
            **declared,
        )


def dynamic_function(
    function: Callable[..., float], tokens: int, *, name: str = "function", **properties: bool
) -> DynamicFunction:
    """A dynamic function from any callable.

    Parameters
    ----------
    function : callable
        ``function(Z, t, Y)``: frozenset, int, frozenset; returns a finite number.
    tokens : int
        T, at least 1.
    name : str
    **properties : bool
        ``normalised, monotone, submodular, modular``: what is declared of every ``F(Z, t, .)``.

    Returns
    -------
    DynamicFunction

    Raises
    ------
    BadArgument
        ``function`` cannot be called, or a property has another name.
    """
    if not callable(function):
        raise BadArgument("function must be callable", got=type(function).__name__)
    try:
        declared = Properties(**properties)
    except TypeError:
        raise BadArgument(
            "properties must be among " + ", ".join(Properties.__dataclass_fields__),
            got=", ".join(properties),
        ) from None
    return _CallableDynamic(function, name, require_size(tokens), declared)
