"""Names to policies: every module of this package registers the classes it defines."""

import importlib
import pkgutil

from h2o_theory.errors import BadArgument, UnknownName
from h2o_theory.policies.base import Policy
from h2o_theory.policies.load import load_policy, names_a_class
from h2o_theory.policies.parse import make_named, split_names

__all__ = ["available", "make_policy", "parse_policies", "register"]

_REGISTRY = {}


def register(cls):
    """Class decorator: make a policy available by its ``name``; refuses a name already taken."""
    if not cls.name or cls.name in _REGISTRY:
        raise BadArgument(
            "a policy needs a name of its own", where=cls.__name__, got=repr(cls.name)
        )
    _REGISTRY[cls.name] = cls
    return cls


def available():
    """All registered policies, ``{name: class}``, sorted by name."""
    package = importlib.import_module("h2o_theory.policies")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"h2o_theory.policies.{module.name}")
    return dict(sorted(_REGISTRY.items()))


def make_policy(text):
    """A policy from ``"name"`` or ``"name:parameter=value,parameter=value"``, or of the user's own.

    ``"module:Class"`` and ``"file.py:Class"`` are read by :func:`h2o_theory.policies.load_policy`.

    Raises
    ------
    UnknownName
        With the nearest registered names.
    BadArgument
        For an unknown parameter or a value of the wrong type.
    """
    classes = available()
    if text.partition(":")[0].strip() not in classes and names_a_class(text):
        return load_policy(text)
    return make_named(text, "policy", classes)


def parse_policies(policies):
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
