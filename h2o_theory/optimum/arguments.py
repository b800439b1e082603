"""Budgets and prefill lengths as the functions of this package take them."""

from operator import index
from typing import SupportsIndex

from h2o_theory.errors import BadArgument, BadBudget, OutOfRange

__all__ = ["require_at_least", "require_budget", "require_integer", "require_prefill"]


def require_integer(number: SupportsIndex, name: str) -> int:
    """``number`` as an int, or a named refusal."""
    try:
        return index(number)
    except TypeError:
        raise BadArgument(
            "not an integer", where=name, got=repr(number), expected="a whole number"
        ) from None


def require_budget(budget: SupportsIndex, largest: int, name: str) -> int:
    """A budget in 1 .. largest."""
    budget = require_integer(budget, name)
    if not 1 <= budget <= largest:
        raise BadBudget(
            "budget out of range",
            where=name,
            got=budget,
            expected=f"1 .. {largest} tokens, the query's own included",
        )
    return budget


def require_prefill(prefill: SupportsIndex, tokens: int) -> int:
    """A prefill length in 0 .. T."""
    prefill = require_integer(prefill, "prefill")
    if not 0 <= prefill <= tokens:
        raise OutOfRange(
            "prefill out of range", where="prefill", got=prefill, expected=f"0 .. {tokens}"
        )
    return prefill


def require_at_least(number: SupportsIndex, least: int, name: str) -> int:
    """An integer of at least ``least``."""
    number = require_integer(number, name)
    if number < least:
        raise BadArgument("too small", where=name, got=number, expected=f"at least {least}")
    return number
