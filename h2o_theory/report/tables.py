"""What the page says in numbers: a table of policies by budget, and one sentence a budget."""

from h2o_theory.errors import BadArgument
from h2o_theory.figures import head_subject
from h2o_theory.figures.series import label_series
from h2o_theory.figures.table import spread
from h2o_theory.policies import available

__all__ = ["glance", "sees_the_future", "table_by_budget"]

_MOST_SENTENCES = 4


def sees_the_future(policy_name: str) -> bool:
    """Whether a policy is known to look at rows to come; False for a policy of the user's own."""
    known = available().get(policy_name)
    return known is not None and known.kind == "clairvoyant"


def table_by_budget(results, summary, setting):
    """Policies as rows, budgets as columns, each cell the mean and worst approximation ratio.

    Parameters
    ----------
    results, summary : DataFrame
        A result table and its `summary_table`.
    setting : Setting
        Of the same table; its budgets are the columns.

    Returns
    -------
    list of dict
        ``label``, ``future`` (see `sees_the_future`) and ``cells``, one for each budget: None, or
        a dict with ``mean``, ``worst``, ``heads`` and ``best`` (the best mean of the column among
        the rows that do not see the future). Best first at the largest budget. Empty without a
        ratio.
    """
    summary = summary[summary.mean_ratio.notna()]
    labelled = label_series(results)
    policies = dict(zip(labelled.series, labelled.policy_name, strict=True))
    future = {label: sees_the_future(policies[label]) for label in summary.policy.unique()}
    online = summary[~summary.policy.map(future).astype(bool)]
    best = online.groupby("budget_tokens").mean_ratio.max()
    at = summary.set_index(["policy", "budget_tokens"])
    largest_first = summary.sort_values(["budget_tokens", "mean_ratio"], ascending=False)

    def cell(label, budget):
        if (label, budget) not in at.index:
            return None
        line = at.loc[(label, budget)]
        return {
            "mean": line.mean_ratio,
            "worst": line.worst_ratio,
            "heads": line.heads,
            "best": not future[label] and line.mean_ratio == best[budget],
        }

    return [
        {
            "label": label,
            "future": future[label],
            "cells": [cell(label, budget) for budget in setting.budgets],
        }
        for label in largest_first.policy.unique()
    ]


def glance(results, summary, setting):
    """One sentence for each budget (at most four) on H2O, or on the first policy with a ratio.

    Parameters
    ----------
    results, summary, setting
        As in `table_by_budget`.

    Returns
    -------
    list of str
        Empty when no policy but `optimum` was compared with the exact optimum.
    """
    try:
        subject = head_subject(results)
    except BadArgument:
        return []
    rows = {row["label"]: row["cells"] for row in table_by_budget(results, summary, setting)}
    lost = summary.set_index(["policy", "budget_tokens"]).lost_mass_ratio
    sentences = []
    for place, budget in spread(list(enumerate(setting.budgets)), _MOST_SENTENCES):
        cell = rows[subject][place]
        if cell is None:
            continue
        text = (
            f"{setting.budget(budget)}: {subject} retains {cell['mean']:.4f} of the mass that the "
            f"exact optimum retains, on average over {cell['heads']} kv_heads "
            f"(worst: {cell['worst']:.4f})"
        )
        if lost[(subject, budget)] == lost[(subject, budget)]:
            text += f", and loses {lost[(subject, budget)]:.2f} times the mass it has to lose"
        sentences.append(text + _leader(rows, subject, place) + ".")
    return sentences


def _leader(rows, subject, place):
    """Which policy leads the column, when it is another one than the subject."""
    leaders = [label for label, cells in rows.items() if cells[place] and cells[place]["best"]]
    if not leaders or subject in leaders:
        return ""
    mean = rows[leaders[0]][place]["mean"]
    return f"; best without sight of the future: {' and '.join(leaders)}, {mean:.4f}"
