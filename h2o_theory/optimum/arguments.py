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
        raise BadArgument(f"{name} must be a whole number", got=repr(number)) from None


def require_budget(budget: SupportsIndex, largest: int, name: str) -> int:
    """A budget in 1 .. largest."""
    budget = require_integer(budget, name)
    if not 1 <= budget <= largest:
        raise BadBudget(
            f"{name} must be 1 to {largest} tokens, the query's own included", got=budget
        )
    return budget


def require_prefill(prefill: SupportsIndex, tokens: int) -> int:
    """A prefill length in 0 .. T."""
    prefill = require_integer(prefill, "prefill")
    if not 0 <= prefill <= tokens:
        raise OutOfRange(f"prefill must be 0 to {tokens}", got=prefill)
    return prefill


def require_at_least(number: SupportsIndex, least: int, name: str) -> int:
    """An integer of at least ``least``."""
    number = require_integer(number, name)
    if number < least:
        raise BadArgument(f"{name} must be at least {least}", got=number)
    return number
