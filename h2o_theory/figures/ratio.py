"""Distributions over heads of the approximation ratio and of the lost-mass ratio."""

import numpy as np
from matplotlib.ticker import MaxNLocator

from h2o_theory.errors import BadArgument
from h2o_theory.figures.looks import policy_look
from h2o_theory.figures.series import label_series
from h2o_theory.figures.style import (
    INK,
    blank,
    draw_centre,
    log_numbers,
    middle_half,
    plain,
    styled,
)
from h2o_theory.figures.table import Setting, count, is_compared, is_policy, require_results, spread

__all__ = ["lost_mass_figure", "ratio_figure"]

MOST_PANELS = 4
MOST_VECTOR_POINTS = 1500
OPT_LINE = {"color": INK, "linewidth": 0.9, "linestyle": (0, (3, 2)), "zorder": 2}


@styled
def ratio_figure(results):
    """Draw the approximation ratio J(policy) / J(OPT) of each head, by policy and budget.

    1 is the exact offline optimum at the same budget; higher is better. One panel for each budget
    (at most four, evenly spread), one line for each series, best mean on top: a small dot for each
    head, a bar over the middle half, the policy's own marker at the mean.

    Parameters
    ----------
    results : DataFrame
        A result table of `h2o_theory.replay`.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    BadArgument
        The table is unfit, or holds no approximation ratio of a policy other than `optimum`.
    """
    table, setting = _ratios(results, "approximation_ratio")
    figure, panels = _distributions(
        table, setting, "approximation_ratio",
        title="Approximation ratio by policy and budget",
        ratio="J(policy) / J(OPT)",
        centre="mean",
    )  # fmt: skip
    low = table["approximation_ratio"].min()
    span = max(1 - low, 1e-3)
    for axes in panels:
        axes.axvline(1.0, **OPT_LINE)
        axes.set_xlim(low - 0.05 * span, 1 + 0.05 * span)
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        axes.set_xlabel("approximation ratio\n(higher is better)")
    return figure


@styled
def lost_mass_figure(results):
    """Draw the lost-mass ratio (n - J(policy)) / (n - J(OPT)) of each head, on a log axis.

    How many times more attention a policy loses than it must: 1 is the exact optimum, lower is
    better. It separates policies whose approximation ratios are all close to 1. Drawn as
    `ratio_figure`, but with the median as marker, since a few heads where OPT loses almost nothing
    dominate the mean; heads where OPT loses nothing have no such ratio and are left out.

    Parameters
    ----------
    results : DataFrame
        A result table of `h2o_theory.replay`.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    BadArgument
        The table is unfit, or holds no lost-mass ratio of a policy other than `optimum`.
    """
    table, setting = _ratios(results, "lost_mass_ratio")
    figure, panels = _distributions(
        table, setting, "lost_mass_ratio",
        title="Lost-mass ratio by policy and budget",
        ratio="(n − J(policy)) / (n − J(OPT)), n scored rows",
        centre="median",
    )  # fmt: skip
    high = table["lost_mass_ratio"].max()
    for axes in panels:
        axes.axvline(1.0, **OPT_LINE)
        axes.set_xscale("log")
        axes.set_xlim(0.93, max(high, 1.1) * 1.12)
        log_numbers(axes.xaxis, high)
        axes.set_xlabel("lost-mass ratio\n(log, lower is better)")
    return figure


def _ratios(results, column):
    """Labelled rows that have a finite ratio in `column`, and the setting of the whole table."""
    require_results(results)
    table = label_series(results[is_policy(results)])
    kept = table[is_compared(table) & np.isfinite(table[column].astype(float))]
    if kept.empty:
        raise BadArgument(
            f"there is no {column.replace('_', ' ').replace('lost mass', 'lost-mass')} to draw",
            where=column,
            got="policies " + ", ".join(results["policy"].astype(str).unique()),
            expected="at least one policy compared with the exact optimum",
        )
    return kept, Setting.of(results)


def _distributions(table, setting, column, *, title, ratio, centre):
    budgets = spread(sorted(table["budget_tokens"].unique()), MOST_PANELS)
    left_out = len(setting.budgets) - len(budgets)
    reference = table[table["budget_tokens"] == budgets[len(budgets) // 2]]
    centres = reference.groupby("series")[column].agg(centre)
    order = centres.sort_values(ascending=column == "lost_mass_ratio").index.tolist()
    order += [name for name in table["series"].unique() if name not in order]
    more = f" {count(left_out, 'other budget')} in the table only." if left_out else ""
    figure = blank(
        title,
        f"{ratio}, both at the same budget. Small dot: one kv_head; bar: middle half of them; "
        f"marker: {centre}; dashed: the exact optimum. The spread describes these heads, which are "
        f"not independent samples; it is no confidence interval.{more}",
        setting,
        height=1.75 + 0.25 * max(len(order), 3),
    )
    panels = figure.subplots(1, len(budgets), sharey=True, squeeze=False)[0]
    rasterized = len(table) > MOST_VECTOR_POINTS
    for axes, budget in zip(panels, budgets, strict=True):
        rows = table[table["budget_tokens"] == budget]
        axes.set_title(f"k = {budget} tokens\n{setting.share(budget)} of T")
        for place, name in enumerate(order):
            _strip(axes, rows[rows["series"] == name], column, place, centre, rasterized)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
    panels[0].set_yticks(range(len(order)), list(map(plain, order)))
    panels[0].set_ylim(len(order) - 0.4, -0.6)
    return figure, panels


def _strip(axes, rows, column, place, centre, rasterized):
    """One series in one panel: heads as dots, their middle half as a bar, their centre marked."""
    if rows.empty:
        return
    values = rows[column].to_numpy(dtype=float)
    first = rows.iloc[0]
    look = policy_look(first["policy_name"], first["variant"])
    axes.scatter(
        values,
        place + _jitter(len(values)),
        s=5, color=look.colour, alpha=0.45, linewidths=0, rasterized=rasterized, zorder=2,
    )  # fmt: skip
    middle_half(axes, values, place)
    draw_centre(axes, rows[column].agg(centre), place, first["policy_name"], first["variant"])


def _jitter(number):
    """Offsets in (-0.28, 0.28) that fill the lane evenly and are the same in every run."""
    golden = 0.6180339887498949
    return 0.56 * ((np.arange(number) * golden) % 1 - 0.5)
