"""Budgets resolved for every kv_head: the same for all, a matrix, or a rule that makes one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from h2o_theory.annotations import Head
from h2o_theory.budgets.matrix import BudgetMatrix
from h2o_theory.budgets.rules import RULES, KvHeads
from h2o_theory.budgets.text import parse_budget, split_budgets
from h2o_theory.errors import BadBudget

__all__ = ["BudgetLike", "resolve_budgets"]

OneBudget: TypeAlias = int | str | dict | np.ndarray | BudgetMatrix | Callable[..., Any]
BudgetLike: TypeAlias = OneBudget | Sequence[OneBudget]
"""``64``, ``"10%"``, ``"10%,20%"``, a matrix or a rule, or a list of these."""


def resolve_budgets(
    place: Any, budgets: Any, heads: list[Head], prefill: int
) -> list[tuple[str, dict[Head, int]]]:
    """Every budget asked for, in tokens on every kv_head.

    Parameters
    ----------
    place : Trace or KvHeads
        What has the kv_heads: a recorded trace, or a model that is yet to run.
    budgets : budget, dict, array [layers, kv_heads], BudgetMatrix, callable, or a list of these
        Text is ``"64"``, ``"10%"``, or the name of a rule with its average budget,
        ``"pyramid:10%"`` or ``"ada:10%"``. A dict is the ``entries`` of a matrix; a callable is a
        rule ``rule(trace, prefill)`` that returns either. Of KvHeads one is asked only if its
        attribute ``needs`` says ``"kv_heads"``.
    heads : list of (layer, kv_head)
    prefill : int

    Returns
    -------
    list of (str, dict)
        The budget as asked for and ``{(layer, kv_head): tokens}``.

    Raises
    ------
    BadBudget
        For anything that cannot be read, is below one token or above T, or lacks a kv_head; for a
        rule that reads rows where there are none; for different budgets of one name.
    """
    found = []
    for budget in split_budgets(budgets):
        matrix = _matrix_of(budget, place, prefill)
        if matrix is None:
            plain = parse_budget(budget)
            tokens = plain.resolve(place.tokens)
            found.append((plain.text, dict.fromkeys(heads, tokens)))
        else:
            resolved = {head: matrix.resolve(place.tokens, *head) for head in heads}
            found.append((matrix.text, resolved))
    _require_own_names(found)
    return found


def _require_own_names(resolved: list[tuple[str, dict[Head, int]]]) -> None:
    """Raise BadBudget for different budgets of one name: no table could tell them apart."""
    first = {}
    for text, tokens in resolved:
        if first.setdefault(text, tokens) != tokens:
            raise BadBudget(
                "two different budgets go by one name",
                where=text,
                hint="Give each its own: BudgetMatrix(name, entries), or a file of another name",
            )


def _matrix_of(budget: Any, place: Any, prefill: int) -> BudgetMatrix | None:
    """The matrix that ``budget`` is or makes; None if it is one number for all heads."""
    if isinstance(budget, str) and budget.partition(":")[0] in RULES:
        name, _, average = budget.partition(":")
        budget = RULES[name](average)
    if isinstance(budget, BudgetMatrix):
        return budget
    if isinstance(budget, dict):
        return BudgetMatrix("matrix", budget)
    if isinstance(budget, np.ndarray):
        return BudgetMatrix.from_array(budget, layers=place.layers)
    if callable(budget):
        name = getattr(budget, "__name__", type(budget).__name__)
        if isinstance(place, KvHeads) and getattr(budget, "needs", "rows") != "kv_heads":
            raise BadBudget(
                "the budget rule reads recorded rows, and a model that is yet to run has none",
                where=name,
                hint="Call it on a trace of the model, rule(trace, prefill), and give the budgets "
                "it returns",
            )
        matrix = budget(place, prefill)
        if isinstance(matrix, dict):
            matrix = BudgetMatrix(name, matrix)
        if not isinstance(matrix, BudgetMatrix):
            raise BadBudget(
                "a budget rule returned no matrix",
                where=name,
                got=type(matrix).__name__,
                expected="a BudgetMatrix or a dict {(layer, kv_head): budget}",
            )
        return matrix
    return None
