"""Retained mass against budget, with the exact optimum and the top-k bound as the envelope."""

import math

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from h2o_theory.errors import BadArgument
from h2o_theory.figures.series import label_series
from h2o_theory.figures.style import (
    GRID,
    INK,
    MUTED,
    blank,
    draw_centre,
    draw_series,
    legend_below_title,
    log_numbers,
    middle_half,
    plain,
    styled,
)
from h2o_theory.figures.table import HEAD, Setting, is_compared, is_policy, require_results

__all__ = ["mass_figure"]

TOPK, OPT = "per-row top-k bound", "OPT (exact optimum)"


@styled
def mass_figure(results):
    """Draw mean retained mass of each policy against the budget, inside its envelope.

    Retained mass is the share of a row's attention that falls on the visible set, averaged over
    rows, then over heads: higher is better, 1 keeps everything. No policy can enter the band
    between OPT (best evict-only schedule) and the per-row top-k bound (which may bring evicted
    entries back). The right panel shows what is lost, 1 - mass, on a logarithmic axis, where good
    policies separate. With a single budget there is no curve to draw: policies are ranked instead.

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
        The table is unfit, or holds only the uncut reference `full`.
    """
    require_results(results)
    setting = Setting.of(results)
    table = label_series(results[is_policy(results)])
    if table.empty:
        raise BadArgument(
            "only the uncut reference was replayed, so there is no budget to compare",
            where="policy",
            got="full",
            hint="Replay at least one policy beside it",
        )
    return (_curves if len(setting.budgets) > 1 else _ranking)(table, setting)


def _means(table):
    """Mean retained mass by series (rows, best first) and budget (columns), `optimum` apart."""
    policies = table[is_compared(table)]
    means = policies.pivot_table(
        index=["series", "policy_name", "variant"], columns="budget_tokens", values="retained_mass"
    )
    means = means.reindex(columns=sorted(table["budget_tokens"].unique()))
    return means.sort_values(means.columns[-1], ascending=False)


def _envelope(table):
    """Mean over heads of OPT's mass and of the top-k bound, by budget; empty where unknown."""
    heads = table.drop_duplicates([*HEAD, "budget_tokens"])
    means = heads.groupby("budget_tokens")[["optimum_mass", "topk_mass"]].mean()
    return means["optimum_mass"].dropna(), means["topk_mass"].dropna()


def _curves(table, setting):
    figure = blank(
        "Retained mass against budget",
        f"Mean over {setting.heads} kv_heads (a description of these heads, which are not "
        f"independent samples). Shaded: between OPT and the per-row top-k bound, where no policy "
        f"that evicts for good can be.",
        setting,
        height=4.3,
    )
    left, right = figure.subplots(1, 2, sharex=True)
    means, (optimum, topk) = _means(table), _envelope(table)
    _draw(left, means, optimum, topk, lost=False)
    _draw(right, means, optimum, topk, lost=True)
    left.set_ylabel("retained mass  (share, higher is better)")
    right.set_ylabel("lost mass = 1 − retained mass  (log, lower is better)")
    left.margins(y=0.04)
    left.set_ylim(top=min(1.0, left.get_ylim()[1]))
    for axes in (left, right):
        _budget_axis(axes, setting)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center")
    return figure


def _draw(axes, means, optimum, topk, *, lost):
    turn = (lambda mass: 1 - mass) if lost else (lambda mass: mass)
    if len(topk):
        axes.plot(topk.index, turn(topk), color=MUTED, linestyle=":", linewidth=1.2, label=TOPK)
    if len(optimum):
        both = optimum.index.intersection(topk.index)
        axes.fill_between(both, turn(optimum[both]), turn(topk[both]), color=GRID, linewidth=0)
        draw_series(axes, optimum.index, turn(optimum), "optimum", label=OPT)
    for (label, policy, variant), masses in means.iterrows():
        masses = masses.dropna()
        draw_series(axes, masses.index, turn(masses), policy, variant, label=label)
    if lost and any(np.any(turn(line) > 0) for line in (optimum, topk, means.to_numpy())):
        axes.set_yscale("log", nonpositive="mask")
        log_numbers(axes.yaxis, np.divide(*axes.get_ylim()[::-1]))


def _budget_axis(axes, setting):
    """A logarithmic budget axis with a tick at each budget replayed that has room for one."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(_apart(setting.budgets)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda k, _: f"{k:.0f}\n{setting.share(k, 2)}"))
    axes.margins(x=0.05)
    axes.set_xlabel("budget k  (tokens; % of T)")


def _apart(budgets, least=0.2):
    """Budgets, from the largest down, at least a share `least` of the log axis apart."""
    budgets = sorted(budgets, reverse=True)
    length = math.log(budgets[0] / budgets[-1])
    kept = budgets[:1]
    for budget in budgets[1:]:
        if math.log(kept[-1] / budget) >= least * length:
            kept.append(budget)
    return kept


def _ranking(table, setting):
    (budget,) = setting.budgets
    means = _means(table)[budget]
    figure = blank(
        f"Retained mass at {setting.budget(budget)}",
        f"Marker: mean over {setting.heads} kv_heads, which are not independent samples; bar: the "
        f"middle half of them. Shaded: between OPT and the per-row top-k bound, where no policy "
        f"that evicts for good can be. With one budget there is no curve: policies are ranked.",
        setting,
        height=2.2 + 0.23 * max(len(means), 4),
    )
    left, right = figure.subplots(1, 2, sharey=True)
    envelope = [line.get(budget) for line in _envelope(table)]
    masses = table.groupby("series")["retained_mass"].apply(np.asarray)
    _rank(left, means, masses, envelope)
    _rank(right, 1 - means, 1 - masses, [None if x is None else 1 - x for x in envelope])
    left.set_yticks(range(len(means)), [plain(label) for label, *_ in means.index])
    left.set_ylim(max(len(means), 1) - 0.4, -0.6)
    left.set_xlabel("retained mass\n(share of attention, higher is better)")
    right.set_xlabel("lost mass = 1 − retained mass\n(log, lower is better)")
    if (means < 1).any():
        right.set_xscale("log", nonpositive="mask")
        log_numbers(right.xaxis, np.divide(*right.get_xlim()[::-1]))
    handles, _ = left.get_legend_handles_labels()
    if handles:
        legend_below_title(figure, handles)
    return figure


def _rank(axes, means, values, envelope):
    optimum, topk = envelope
    if optimum is not None and topk is not None:
        axes.axvspan(*sorted(envelope), color=GRID, linewidth=0)
    if optimum is not None:
        axes.axvline(optimum, color=INK, linewidth=1.4, label=OPT)
    if topk is not None:
        axes.axvline(topk, color=MUTED, linestyle=":", linewidth=1.2, label=TOPK)
    for place, ((label, policy, variant), mean) in enumerate(means.items()):
        middle_half(axes, values[label], place)
        draw_centre(axes, mean, place, policy, variant)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
