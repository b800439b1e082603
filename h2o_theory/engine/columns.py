"""What a table of results says of a policy: as asked, its name, its parts, its other parameters."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from h2o_theory.policies.base import Policy, parameters_text

__all__ = ["PARTS", "POLICY_COLUMNS", "policy_columns", "with_whole_parts"]

PARTS = ("n_sink", "n_heavy", "n_recent")

POLICY_COLUMNS = ("policy", "policy_name", *PARTS, "parameters")

_SAID_BY_PARTS = {*PARTS, "recent"}


def policy_columns(policy: Policy, budgets: int | Iterable[int]) -> dict[str, Any]:
    """The columns :data:`POLICY_COLUMNS` of a line.

    Parameters
    ----------
    policy : Policy
    budgets : int or iterable of int
        Of all kv_heads that the line is about; parts that differ among them are NA.

    Examples
    --------
    >>> from h2o_theory.policies import make_policy
    >>> policy_columns(make_policy("sink"), 10)  # doctest: +NORMALIZE_WHITESPACE
    {'policy': 'sink', 'policy_name': 'sink', 'n_sink': 4, 'n_heavy': 0, 'n_recent': 6,
     'parameters': 'positions=original'}
    """
    budgets = {budgets} if isinstance(budgets, int) else set(budgets)
    parts = [policy.parts(budget) for budget in budgets]
    others = {n: v for n, v in policy.parameters().items() if n not in _SAID_BY_PARTS}
    return {
        "policy": policy.asked,
        "policy_name": policy.name,
        **{name: _common(getattr(part, name) for part in parts) for name in PARTS},
        "parameters": parameters_text(others),
    }


def with_whole_parts(table: pd.DataFrame) -> pd.DataFrame:
    """The table with its parts as whole numbers that may be missing."""
    return table.astype({name: "Int64" for name in PARTS if name in table})


def _common(values):
    found = set(values)
    return found.pop() if len(found) == 1 else pd.NA
