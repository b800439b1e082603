"""One line per policy and budget over all windows, with intervals over stretches of the text."""

import math

import numpy as np
import pandas as pd

from h2o_theory.engine.columns import POLICY_COLUMNS, with_whole_parts
from h2o_theory.statistics import ratio_interval
from h2o_theory.statistics.resample import LEAST

__all__ = ["mean_interval", "paired_increase", "summarise"]


def mean_interval(values, seed=0):
    """The mean of values along a text and its 95 % interval over 32 stretches of it.

    Stretches, not tokens, are drawn with replacement: neighbours are alike. Under 64 values the
    interval is the whole line.

    Returns
    -------
    tuple (mean, low, high)
    """
    values = np.asarray(values, dtype=np.float64)
    if len(values) < LEAST:
        return float(values.mean()), -math.inf, math.inf
    return tuple(ratio_interval(values, np.ones(len(values)), seed=seed))


def paired_increase(losses, baseline):
    """Mean difference of losses of the same tokens, with its interval; windows one after another.

    Parameters
    ----------
    losses, baseline : list of float64 arrays
        One per window; what either does not predict (NaN) is left out.
    """
    difference = np.concatenate(losses) - np.concatenate(baseline)
    return mean_interval(difference[~np.isnan(difference)])


def summarise(campaign):
    """Mean over all scored tokens of all windows, best first within a budget.

    Parameters
    ----------
    campaign : Campaign

    Returns
    -------
    pandas.DataFrame
        The columns of a policy, budget, budget_tokens, windows, n (tokens), perplexity,
        loss_increase over the full cache of the same tokens (nats per token) with ``low`` and
        ``high`` of its 95 % interval, agreement, kl, kv_bytes and the share of the full cache's.
        Failed cells are left out.
    """
    done = campaign.table[campaign.table["status"] == "done"]
    full = {row.window: row for row in done[done["policy_name"] == "full"].itertuples()}
    lines = []
    for _, rows in done.groupby(["budget_tokens", "policy", "budget"], sort=False):
        said = rows.iloc[0][[*POLICY_COLUMNS, "budget", "budget_tokens"]].to_dict()
        rows = [row for row in rows.itertuples() if row.window in full]
        if not rows:
            continue
        firsts = [row.tokens - int(row.n) for row in rows]
        own = [campaign.losses[row.cell][first:] for row, first in zip(rows, firsts, strict=True)]
        base = [
            campaign.losses[full[row.window].cell][first:]
            for row, first in zip(rows, firsts, strict=True)
        ]
        increase, low, high = paired_increase(own, base)
        weights = [int(row.n) for row in rows]
        lines.append(
            {
                **said,
                "windows": len(rows),
                "n": sum(weights),
                "perplexity": math.exp(np.concatenate(own).mean()),
                "loss_increase": increase,
                "low": low,
                "high": high,
                "agreement": np.average([row.agreement for row in rows], weights=weights),
                "kl": np.average([row.kl for row in rows], weights=weights),
                "kv_bytes": int(max(row.kv_bytes for row in rows)),
                "kv_share": max(row.kv_bytes / row.full_kv_bytes for row in rows),
            }
        )
    columns = [*POLICY_COLUMNS, "budget", "budget_tokens", "windows", "n", "perplexity"]
    columns += ["loss_increase", "low", "high", "agreement", "kl", "kv_bytes", "kv_share"]
    table = with_whole_parts(pd.DataFrame(lines, columns=columns))
    order = ["budget_tokens", "loss_increase"]
    return table.sort_values(order, kind="stable").reset_index(drop=True)
