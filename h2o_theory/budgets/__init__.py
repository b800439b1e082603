"""Budgets: how many entries a cache may hold, as asked for and resolved for every kv_head."""

from h2o_theory.budgets.matrix import BudgetMatrix, read_budget_matrix
from h2o_theory.budgets.resolve import resolve_budgets
from h2o_theory.budgets.rules import AdaKV, KvHeads, PyramidKV
from h2o_theory.budgets.text import Budget, parse_budget, parse_budgets, resolve_even

__all__ = [
    "AdaKV",
    "Budget",
    "BudgetMatrix",
    "KvHeads",
    "PyramidKV",
    "parse_budget",
    "parse_budgets",
    "read_budget_matrix",
    "resolve_budgets",
    "resolve_even",
]
