"""Names to policies: every module of this package registers the classes it defines."""

import difflib
import importlib
import pkgutil
import types
import typing
from dataclasses import fields

from h2o_theory.errors import BadArgument, UnknownPolicy
from h2o_theory.policies.base import Policy

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
    """A policy from ``"name"`` or ``"name:parameter=value,parameter=value"``.

    Raises
    ------
    UnknownPolicy
        With the nearest registered names.
    BadArgument
        For an unknown parameter or a value of the wrong type.
    """
    name, _, rest = text.strip().partition(":")
    policies = available()
    if name not in policies:
        near = difflib.get_close_matches(name.lower(), policies, n=3, cutoff=0.5)
        raise UnknownPolicy(
            "there is no such policy",
            got=repr(name),
            expected=", ".join(policies),
            hint=f"Did you mean {' or '.join(near)}?" if near else "",
        )
    cls = policies[name]
    kinds = {item.name: item.type for item in fields(cls)}
    parameters = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or key not in kinds:
            raise BadArgument(
                "a policy parameter cannot be read",
                where=name,
                got=repr(item),
                expected=", ".join(f"{key}=..." for key in kinds) or "no parameters",
            )
        parameters[key] = _convert(name, key, value, kinds[key])
    return cls(**parameters)


def _convert(name, key, value, kind):
    if isinstance(kind, types.UnionType):  # an optional parameter, such as int | None
        (kind,) = (member for member in typing.get_args(kind) if member is not types.NoneType)
    try:
        return kind(value)
    except ValueError:
        raise BadArgument(
            "a policy parameter has the wrong type",
            where=f"{name}:{key}",
            got=repr(value),
            expected=kind.__name__,
        ) from None


def parse_policies(policies):
    """Policies from a comma-separated string, or a list of strings and policy objects.

    In a string, ``parameter=value`` after a comma belongs to the policy before it:
    ``"h2o:recent=0.25,rows=raw,lru"`` is two policies.
    """
    if isinstance(policies, str):
        texts = []
        for part in filter(None, (part.strip() for part in policies.split(","))):
            if "=" in part and ":" not in part and texts:
                texts[-1] += f",{part}"
            else:
                texts.append(part)
        policies = texts
    elif isinstance(policies, Policy) or not hasattr(policies, "__iter__"):
        policies = [policies]
    made = [make_policy(item) if isinstance(item, str) else item for item in policies]
    if not made:
        raise UnknownPolicy("no policy was given", expected=", ".join(available()))
    return made
