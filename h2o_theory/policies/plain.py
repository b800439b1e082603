"""Policies written as plain Python classes: slower, same semantics, any state you like."""

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from h2o_theory.policies.base import Context, Policy

__all__ = ["PlainPolicy"]


class PlainPolicy(Policy):
    """Base for a policy of your own; override :meth:`rate` and usually :meth:`observe`.

    At every step the engine adds the newcomer, calls ``observe``, and while the cache is full
    calls ``rate`` and evicts the lowest rating among evictable positions, the oldest among
    equals. A subclass sees the visible part of a row only. Its parameters are what ``__init__``
    takes; they name it in results.

    Attributes
    ----------
    kind : {"online", "clairvoyant"}
        A clairvoyant policy is given ``self.future = mean_rows`` [T, T] before it starts.
    needs : str
        Any of ``positions rows queries unrotated keys values``. Before each step the engine sets
        ``self.queries`` [G, t + 1, d], ``self.keys`` [t + 1, d] and so on, as far as they are
        named here: the tensors of the tokens that have arrived, evicted ones included.
    name, rows, group, scope
        As for every :class:`~h2o_theory.policies.Policy`.

    Examples
    --------
    >>> class Fading(PlainPolicy):
    ...     name = "fading"
    ...
    ...     def __init__(self, alpha=0.5):
    ...         self.alpha = alpha
    ...
    ...     def start(self, context):
    ...         self.score = {}
    ...
    ...     def observe(self, t, positions, row):
    ...         for j, weight in zip(positions, row):
    ...             self.score[j] = self.alpha * self.score.get(j, 0.0) + weight
    ...
    ...     def rate(self, t, positions):
    ...         return [self.score[j] for j in positions]
    >>> Fading(alpha=0.9).asked
    'fading:alpha=0.9'
    """

    name = "plain"
    future: np.ndarray | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> "PlainPolicy":
        """Note what the constructor was given: those are the policy's parameters.

        A copy and an unpickled policy come here without arguments and get the note with the rest
        of their state.
        """
        if cls.__init__ is object.__init__ and (args or kwargs):
            raise TypeError(f"{cls.__name__}() takes no arguments")
        policy = super().__new__(cls)
        policy.__dict__["_given"] = (args, kwargs)
        return policy

    def parameters(self) -> dict[str, Any]:
        """What ``__init__`` was given, with its defaults, in order of declaration."""
        if type(self).__init__ is object.__init__:
            return {}
        args, kwargs = self._given
        signature = inspect.signature(type(self).__init__)
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        _, *names = bound.arguments
        found = {}
        for name in names:
            value = bound.arguments[name]
            if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                found |= value
            elif signature.parameters[name].kind is not inspect.Parameter.VAR_POSITIONAL or value:
                found[name] = value
        own = {item.name for item in dataclasses.fields(self)} if _is_data(self) else set()
        # A dataclass may have changed what it was given after it was made.
        return {name: getattr(self, name) if name in own else found[name] for name in found}

    def defaults(self) -> dict[str, Any]:
        """The defaults of those parameters that have one."""
        named = inspect.signature(type(self).__init__).parameters.values()
        found = {p.name: p.default for p in named if p.default is not inspect.Parameter.empty}
        for item in dataclasses.fields(self) if _is_data(self) else ():
            # Not `is not MISSING`: a class that was pickled to a worker has another one.
            if callable(item.default_factory):
                found[item.name] = item.default_factory()
        return found

    def start(self, context: Context) -> None:
        """Reset the state; ``context`` is :class:`h2o_theory.policies.Context`."""

    def observe(self, t: int, positions: np.ndarray, row: np.ndarray) -> None:
        """See row t over the visible ``positions`` (ascending), reduced over the group."""

    def rate(self, t: int, positions: np.ndarray) -> Sequence[float] | np.ndarray:
        """One number per position; the lowest is evicted."""
        raise TypeError(f"{type(self).__name__} must define rate(t, positions)")


_is_data = dataclasses.is_dataclass
