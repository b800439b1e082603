"""Which rows of a result table make one series, and how variants of a policy are told apart."""

import pandas as pd

from h2o_theory.budgets import parse_budget
from h2o_theory.errors import BadBudget

__all__ = ["label_series"]


def label_series(results: pd.DataFrame) -> pd.DataFrame:
    """Copy of a table with the columns ``series`` (a label) and ``variant`` (0, 1, ...).

    A series is a policy as asked for. Where a rule gives each kv_head its own budget, the rule
    belongs to the label: "h2o, pyramid". Series of one ``policy_name`` are its variants, in order
    of appearance but rules last; they share a colour. Seeds of a policy stay one series.

    Parameters
    ----------
    results : DataFrame
        With the columns ``policy``, ``policy_name`` and ``budget``.

    Returns
    -------
    DataFrame
        With a fresh index. O(rows).
    """
    out = results.reset_index(drop=True)
    rule = out["budget"].map({text: _rule(text) for text in out["budget"].unique()})
    out["series"] = out["policy"].where(rule == "", out["policy"] + ", " + rule)
    # One budget for all heads comes first: it keeps the look of the policy's own name.
    first = out.assign(rule=rule).drop_duplicates("series").sort_values("rule", kind="stable")
    number = first.groupby("policy_name", sort=False).cumcount()
    out["variant"] = out["series"].map(dict(zip(first["series"], number, strict=True))).astype(int)
    return out


def _rule(budget):
    """The rule or matrix that gives each kv_head its own budget, by name; "" for one for all."""
    try:
        parse_budget(budget)
    except BadBudget:
        return str(budget).partition("(")[0]
    return ""
