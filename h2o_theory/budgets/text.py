"""Budgets: ``64`` is a number of tokens, ``10%`` a share of the sequence, resolved exactly."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from h2o_theory.errors import BadBudget

__all__ = ["Budget", "parse_budget", "parse_budgets", "resolve_even", "split_budgets"]

_EXPECTED = "a number of tokens such as 64, or a share of the sequence such as 10%"


@dataclass(frozen=True)
class Budget:
    """A budget as asked for, not yet resolved against a sequence length.

    Attributes
    ----------
    text : str
        As written.
    amount : Fraction
        Tokens, or per cent of T.
    is_share : bool
    """

    text: str
    amount: Fraction
    is_share: bool

    def resolve(self, tokens: int) -> int:
        """Budget k in tokens: floor of the exact share, at least 1; raises BadBudget above T."""
        if self.is_share:
            return max(1, int(self.amount * tokens / 100))
        if self.amount > tokens:
            raise BadBudget(
                "the budget exceeds the sequence",
                where="budget",
                got=self.text,
                expected=f"1 to {tokens} tokens",
                hint="Give a share such as 20%, or record more tokens",
            )
        return int(self.amount)


def parse_budget(text: int | str) -> Budget:
    """Read one budget: an int, ``"64"`` or ``"12.5%"``; raises BadBudget for anything else.

    Examples
    --------
    >>> parse_budget("12.5%").resolve(500)
    62
    """
    text = str(text).strip()
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%?)", text)
    if match is None or (not match[2] and "." in match[1]):
        # A share written as a number is plain; any other number is not ours to guess.
        share = re.fullmatch(r"0?\.\d+", text)
        hint = f"Did you mean {float(Fraction(text) * 100):g}%?" if share else ""
        raise BadBudget("a budget cannot be read", got=repr(text), expected=_EXPECTED, hint=hint)
    amount, is_share = Fraction(match[1]), bool(match[2])
    if amount <= 0 or (is_share and amount > 100):
        raise BadBudget(
            "a budget is out of range",
            got=repr(text),
            expected="more than 0% and at most 100%" if is_share else "at least 1 token",
        )
    return Budget(text, amount, is_share)


def split_budgets(budgets: Any) -> list[Any]:
    """A list of budgets as asked for, each still unread; raises BadBudget if there is none.

    A dict, a matrix and a two-dimensional array are one budget each; text is split at its commas.
    """
    if isinstance(budgets, str):
        budgets = [part.strip() for part in budgets.split(",") if part.strip()]
    elif isinstance(budgets, dict) or not hasattr(budgets, "__iter__"):
        budgets = [budgets]
    elif isinstance(budgets, np.ndarray) and budgets.ndim == 2:
        budgets = [budgets]
    budgets = list(budgets)
    if not budgets:
        raise BadBudget("no budget was given", expected=_EXPECTED)
    return budgets


def parse_budgets(budgets: Any) -> list[Budget]:
    """Read a list of budgets, or one comma-separated string of them, or a single one."""
    return [parse_budget(budget) for budget in split_budgets(budgets)]


def resolve_even(budgets: Any, tokens: int) -> dict[str, int]:
    """``{budget as asked for: tokens}`` of budgets that are the same for every kv_head.

    Examples
    --------
    >>> resolve_even("10%,64", 512)
    {'10%': 51, '64': 64}
    """
    return {budget.text: budget.resolve(tokens) for budget in parse_budgets(budgets)}
