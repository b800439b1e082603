"""Approximation ratios where the optimum is known between two bounds only."""

import numpy as np

from h2o_theory.engine.columns import POLICY_COLUMNS
from h2o_theory.optimum import UNITS

__all__ = ["ratio_intervals"]

_KEY = ["layer", "kv_head", "budget"]
_SINGLE = 2.0**-24
"""Relative rounding of one entry in the rows that :func:`certified_interval` reads."""


def ratio_intervals(results, heads):
    r"""Bound the approximation ratio of policies on every head from both sides.

    With :math:`L \le J_{OPT} \le U` and a policy's own J, which is at most J(OPT),

    .. math:: \frac{J}{U} \le \frac{J}{J_{OPT}} \le \min\Bigl(1, \frac{J}{L}\Bigr), \qquad
              \max\Bigl(1, \frac{F - J}{F - L}\Bigr) \le \frac{F - J}{F - J_{OPT}}
              \le \frac{F - J}{F - U},

    F the mass of the whole rows. L and U are first moved apart by what the rounding of rows to
    single precision may change.

    Parameters
    ----------
    results : DataFrame
        Of :func:`h2o_theory.replay`, with or without the optimum.
    heads : DataFrame
        Of :func:`certified_interval`, with the same budgets and prefill.

    Returns
    -------
    DataFrame
        The results of budgets and heads that both tables hold: layer, kv_head, the columns of a
        policy, budget, budget_tokens, retained_mass, ``ratio_least``, ``ratio_most``,
        ``lost_ratio_least``, ``lost_ratio_most``. A ratio is NaN where its denominator may be 0.
    """
    names = [*_KEY, *POLICY_COLUMNS, "budget_tokens", "retained_mass", "full_mass"]
    table = results[names].merge(heads[[*_KEY, "optimum_mass", "bound_mass"]], on=_KEY)
    slack = table.bound_mass * _SINGLE + table.budget_tokens / UNITS
    lower, upper = table.optimum_mass - slack, table.bound_mass + slack
    mass, full = table.retained_mass, table.full_mass
    table["ratio_least"] = mass / upper.where(table.bound_mass > 0)
    table["ratio_most"] = (mass / lower.where(lower > 0)).clip(upper=1.0)
    table["lost_ratio_least"] = (full - mass) / (full - lower).where(lower < full)
    table["lost_ratio_least"] = table["lost_ratio_least"].clip(lower=1.0)
    table["lost_ratio_most"] = (full - mass) / (full - upper).where(upper < full)
    return table.drop(columns=["optimum_mass", "bound_mass", "full_mass"]).replace([np.inf], np.nan)
