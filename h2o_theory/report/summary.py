"""One line per policy and budget, over all heads."""

import numpy as np
import pandas as pd

from h2o_theory.figures.series import label_series
from h2o_theory.figures.table import HEAD, check_results, one_budget_each

__all__ = ["summary_table"]


def summary_table(results):
    """Means over heads of every policy at every budget, best first within a budget.

    Parameters
    ----------
    results : DataFrame
        A table of :func:`h2o_theory.replay`.

    Returns
    -------
    DataFrame
        policy, budget, budget_tokens (the mean over heads where a matrix gave each its own),
        heads, mean_ratio, median_ratio, worst_ratio (all of the approximation ratio J / J(OPT)
        over heads), lost_mass_ratio (pooled: the mass all heads lose over the mass OPT loses on
        them), retained_mass, output_error, kl (means over heads).
        References such as ``full`` carry no ratio.

    Raises
    ------
    BadArgument
        For a table that is not one experiment.
    """
    check_results(results)
    labelled = label_series(one_budget_each(results))
    labelled["lost"] = labelled.n_rows * (labelled.full_mass - labelled.retained_mass)
    labelled["lost_least"] = labelled.n_rows * (labelled.full_mass - labelled.optimum_mass)
    lines = []
    for (budget, _), rows in labelled.groupby(["budget", "series"], sort=False):
        tokens = rows.budget_tokens
        ratio, least = rows.approximation_ratio, rows.lost_least.sum()
        compared = ratio.notna().any() and least > 1e-9 * rows.n_rows.sum()
        lines.append(
            {
                "policy": rows.series.iloc[0],
                "budget": budget,
                "budget_tokens": tokens.iloc[0] if tokens.nunique() == 1 else tokens.mean(),
                "heads": len(rows[HEAD].drop_duplicates()),
                "mean_ratio": ratio.mean(),
                "median_ratio": ratio.median(),
                "worst_ratio": ratio.min(),
                "lost_mass_ratio": rows.lost.sum() / least if compared else np.nan,
                "retained_mass": rows.retained_mass.mean(),
                "output_error": rows.output_error.mean(),
                "kl": rows.kl.mean(),
            }
        )
    order = ["budget_tokens", "mean_ratio"]
    table = pd.DataFrame(lines).sort_values(order, ascending=[True, False], kind="stable")
    return table.reset_index(drop=True)
