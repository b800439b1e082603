"""Names to policies: every module of this package registers the classes it defines."""

import importlib
import pkgutil
from collections.abc import Iterable

from h2o_theory.errors import BadArgument, UnknownName
from h2o_theory.policies.base import Policy
from h2o_theory.policies.load import find_class, names_a_class
from h2o_theory.policies.parse import make_class, make_named, split_names

__all__ = ["available", "make_policy", "parse_policies", "register"]

_REGISTRY = {}


def register(cls: type[Policy]) -> type[Policy]:
    """Class decorator: make a policy available by its ``name``; refuses a name already taken."""
    if not cls.name or cls.name in _REGISTRY:
        raise BadArgument(
            "a policy needs a name of its own", where=cls.__name__, got=repr(cls.name)
        )
    _REGISTRY[cls.name] = cls
    return cls


def available() -> dict[str, type[Policy]]:
    """All registered policies, ``{name: class}``, sorted by name."""
    # Late, because the rules import this module to register themselves.
    rules = importlib.import_module("h2o_theory.policies.rules")
    for module in pkgutil.walk_packages(rules.__path__, f"{rules.__name__}."):
        importlib.import_module(module.name)
    return dict(sorted(_REGISTRY.items()))


_ELSEWHERE = {
    "streamingllm": "sink",
    "streaming_llm": "sink",
    "streaming-llm": "sink",
    "pyramidkv": "a policy at the budget pyramid:10%",
    "adakv": "a policy at the budget ada:10%",
    "observedattention": "h2o",
    "slidingwindow": "recent",
    "window": "recent",
    "knorm": "key_norm",
    "keydiff": "key_diff",
    "expectedattention": "expected_attention",
}
"""Names that papers and other libraries use, with what they are called here."""


def make_policy(text: str) -> Policy:
    """A policy from ``"name"`` or ``"name:parameter=value,parameter=value"``, or of the user's own.

    A class of the user's is written ``"module:Class"`` or ``"path/to/file.py:Class"``, with
    ``:parameter=value,...`` behind it.

    Raises
    ------
    UnknownName
        With the nearest registered names.
    BadArgument
        For an unknown parameter, a value of the wrong type, or a class that is no policy.

    Examples
    --------
    >>> make_policy("h2o:recent=0.25").parts(100)
    Parts(n_sink=0, n_heavy=75, n_recent=25)
    """
    classes = available()
    if text.partition(":")[0].strip() not in classes and names_a_class(text):
        cls, parameters = find_class(text)
        if not issubclass(cls, Policy):
            raise BadArgument(
                f"{cls.__name__} must be a subclass of h2o_theory.PlainPolicy", where=text
            )
        return make_class(cls, parameters, text.strip())
    return make_named(text, "policy", classes, _ELSEWHERE)


def parse_policies(policies: str | Policy | Iterable[str | Policy]) -> list[Policy]:
    """Policies from a comma-separated string, or a list of strings and policy objects.

    In a string, ``parameter=value`` after a comma belongs to the policy before it:
    ``"h2o:recent=0.25,rows=raw,lru"`` is two policies.
    """
    if isinstance(policies, str):
        policies = split_names(policies)
    elif isinstance(policies, Policy) or not hasattr(policies, "__iter__"):
        policies = [policies]
    made = [make_policy(item) if isinstance(item, str) else item for item in policies]
    if not made:
        raise UnknownName("no policy was given", expected=", ".join(available()))
    return made
