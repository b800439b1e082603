"""Budgets: ``64`` is a number of tokens, ``10%`` a share of the sequence, resolved exactly."""

import re
from dataclasses import dataclass
from fractions import Fraction

from h2o_theory.errors import BadBudget

__all__ = ["Budget", "parse_budget", "parse_budgets"]

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

    def resolve(self, tokens):
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


def parse_budget(text):
    """Read one budget: an int, ``"64"`` or ``"12.5%"``; raises BadBudget for anything else."""
    text = str(text).strip()
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%?)", text)
    if match is None or (not match[2] and "." in match[1]):
        near = re.sub(r"[^\d%]", "", text)
        hint = f"Did you mean {near}?" if re.fullmatch(r"\d+%?", near) and "." not in text else ""
        raise BadBudget("a budget cannot be read", got=repr(text), expected=_EXPECTED, hint=hint)
    amount, is_share = Fraction(match[1]), bool(match[2])
    if amount <= 0 or (is_share and amount > 100):
        raise BadBudget(
            "a budget is out of range",
            got=repr(text),
            expected="more than 0% and at most 100%" if is_share else "at least 1 token",
        )
    return Budget(text, amount, is_share)


def parse_budgets(budgets):
    """Read a list of budgets, or one comma-separated string of them, or a single one."""
    if isinstance(budgets, str):
        budgets = [part for part in budgets.split(",") if part.strip()]
    elif not hasattr(budgets, "__iter__"):
        budgets = [budgets]
    budgets = list(budgets)
    if not budgets:
        raise BadBudget("no budget was given", expected=_EXPECTED)
    return [parse_budget(budget) for budget in budgets]
