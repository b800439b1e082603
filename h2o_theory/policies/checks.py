"""Checks of a policy's parameters, as sentences about them."""

from dataclasses import fields
from typing import Any

from h2o_theory.errors import BadArgument

__all__ = [
    "GROUP_REDUCTIONS",
    "ROWS",
    "require_common",
    "require_one_of",
    "require_share",
    "require_whole_number",
]

ROWS = ("renormalised", "raw")
GROUP_REDUCTIONS = ("mean", "sum", "max", "first")


def require_one_of(policy: Any, name: str, options: tuple) -> None:
    """Raise BadArgument unless parameter ``name`` of ``policy`` is one of ``options``."""
    value = getattr(policy, name)
    if value not in options:
        listed = " or ".join(map(str, options))
        raise BadArgument(f"{name} must be {listed}", where=policy.name, got=repr(value))


def require_whole_number(policy: Any, name: str, least: int) -> None:
    """Raise BadArgument unless parameter ``name`` is an integer of at least ``least``."""
    value = getattr(policy, name)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadArgument(
            f"{name} must be a whole number of at least {least}",
            where=policy.name,
            got=repr(value),
        )


def require_share(policy: Any, name: str) -> None:
    """Raise BadArgument unless parameter ``name`` is a share from 0 to 1."""
    value = getattr(policy, name)
    if not 0 <= value <= 1:
        raise BadArgument(f"{name} must be a share from 0 to 1", where=policy.name, got=value)


def require_common(policy: Any) -> None:
    """Check the parameters whose meaning is the same in every compiled policy that has them."""
    for item in fields(policy):
        if item.name in _COMMON and getattr(policy, item.name) is not None:
            check, *more = _COMMON[item.name]
            check(policy, item.name, *more)


_COMMON = {
    "recent": (require_share,),
    "n_sink": (require_whole_number, 0),
    "n_heavy": (require_whole_number, 0),
    "n_recent": (require_whole_number, 0),
    "window": (require_whole_number, 1),
    "rows": (require_one_of, ROWS),
    "group": (require_one_of, GROUP_REDUCTIONS),
}
