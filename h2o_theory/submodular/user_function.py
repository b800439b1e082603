"""Set functions from a callable that the user wrote."""

from collections.abc import Callable, Iterable

import numpy as np

from h2o_theory.errors import BadArgument
from h2o_theory.submodular.arguments import require_size
from h2o_theory.submodular.set_function import Properties, SetFunction

__all__ = ["set_function"]


class _Callable(SetFunction):
    """A function that the user wrote."""

    def __init__(
        self,
        function: Callable[[frozenset[int]], float],
        name: str,
        size: int,
        properties: Properties,
    ) -> None:
        super().__init__(name, size, properties)
        self._function = function

    def value(self, members: Iterable[int]) -> float:
        value = float(self._function(frozenset(members)))
        if not np.isfinite(value):
            raise BadArgument(
                "a set function must be finite", where=f"{self.name}({sorted(members)})", got=value
            )
        return value


def set_function(
    function: Callable[[frozenset[int]], float],
    size: int,
    *,
    normalised: bool = False,
    monotone: bool = False,
    submodular: bool = False,
    modular: bool = False,
    name: str = "function",
) -> SetFunction:
    """A set function from any callable.

    Parameters
    ----------
    function : callable
        Takes a frozenset of elements ``0 .. size-1``, returns a finite number.
    size : int
        n, at least 1.
    normalised, monotone, submodular, modular : bool
        What is declared of it; unproved, see :func:`refute_declared`. Upper bounds of maximisers
        rest on what is declared here.
    name : str

    Returns
    -------
    SetFunction

    Raises
    ------
    BadArgument
        ``function`` cannot be called or ``size`` is no positive integer; on evaluation, if a
        value is not finite.

    Examples
    --------
    >>> f = set_function(lambda chosen: len(chosen) ** 0.5, 4, monotone=True, submodular=True)
    >>> f.value([0, 1, 2, 3])
    2.0
    """
    if not callable(function):
        raise BadArgument("function must be callable", got=type(function).__name__)
    size = require_size(size)
    properties = Properties(normalised, monotone, submodular or modular, modular)
    return _Callable(function, name, size, properties)
