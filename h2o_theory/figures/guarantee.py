"""What the guarantee promises over the steps, against what a policy achieves."""

import numpy as np
from matplotlib.ticker import FuncFormatter

from h2o_theory.figures.looks import INK, policy_look
from h2o_theory.figures.style import PAPER, blank, legend_line, plain, styled
from h2o_theory.figures.table import Setting

__all__ = ["guarantee_figure"]

_BOUNDS = (
    ("direct", "no induction: (f~ − eps0) / opt", "#009e73", (0, (5, 1.4, 1, 1.4))),
    ("together", "induction, theta and gamma as one", "#2478b8", (0, (5, 2))),
    ("repaired", "induction, theta and gamma apart", "#8667c9", (0, (9, 2.5))),
    ("uniform", "the same, worst constants of all steps", "#8b919b", (0, (1.2, 1.8))),
    ("paper", "as printed, worst constants", "#b0602f", (0, (3, 1, 1, 1, 1, 1))),
)
_CONDITIONS = (
    ("theta", "theta: the set's value shrinks", "#d55e00", "o"),
    ("gamma_used", "gamma as used: opt grows", "#2478b8", "s"),
    ("gamma", "gamma as defined: opt shrinks", "#56a9dc", "^"),
    ("swap_loss", "swap: value given up, taken for 0", "#cc79a7", "D"),
)
_SMALLEST = 1e-6


@styled
def guarantee_figure(guarantee):
    """Draw the bounds and the achieved ratio over the steps, and the conditions they rest on.

    Left: the ratio of the policy's set to the best value of the step, median over kv_heads with
    the middle half of them, and the lower bounds on it; higher is better; a bound at or below 0
    says nothing and is not drawn. Right: the measured conditions, largest over kv_heads, on a log
    axis, with what the paper's premises allow.

    Parameters
    ----------
    guarantee : h2o_theory.guarantee.MeasuredGuarantee

    Returns
    -------
    matplotlib.figure.Figure
    """
    steps = guarantee.steps
    heads = len(steps[["layer", "kv_head"]].drop_duplicates())
    setting = Setting(
        model=guarantee.model,
        level="open",
        traces=(guarantee.trace,),
        tokens=guarantee.tokens,
        prefill=guarantee.prefill,
        heads=heads,
        layers=steps["layer"].nunique(),
        budgets={guarantee.budget_tokens: guarantee.budget},
    )
    seen = "f itself" if guarantee.approximate == guarantee.exact else guarantee.approximate
    figure = blank(
        f"What is guaranteed of {guarantee.policy}, and what it achieves",
        f"f: {guarantee.exact}; f~: {seen}; {setting.budget(guarantee.budget_tokens)}. Left: "
        "median over kv_heads, the achieved ratio with the middle half of them; higher is better. "
        "A bound not above 0 is vacuous and not drawn. Right: the largest over kv_heads at each "
        "step, values from 1e-6; the theorem supposes theta and gamma below the dashed line "
        "(alpha = 1), and no loss at all.",
        setting,
        height=5.0,
    )
    left, right = figure.subplots(1, 2)
    _draw_bounds(left, guarantee)
    _draw_conditions(right, guarantee)
    return figure


def _draw_bounds(axes, guarantee):
    by_step = guarantee.steps.groupby("step")
    ratio = by_step["ratio"]
    look = policy_look(guarantee.policy)
    middle = ratio.median()
    axes.fill_between(
        middle.index, ratio.quantile(0.25), ratio.quantile(0.75),
        color=look.colour, alpha=0.18, linewidth=0,
    )  # fmt: skip
    axes.plot(middle.index, middle, color=look.colour, linewidth=2.0)
    handles = [legend_line(f"achieved by {guarantee.policy}", color=look.colour, linewidth=2.0)]
    for name, label, colour, dash in _BOUNDS:
        bound = by_step[name].median()
        said = bound > 0
        axes.plot(bound.index, bound.where(said), color=colour, linestyle=dash, linewidth=1.4)
        if not said[bound.notna()].any():
            label += " (vacuous throughout)"
        elif not said[bound.notna()].all():
            label += f" (vacuous from t = {int(said[bound.notna()].idxmin())})"
        handles.append(legend_line(label, color=colour, linestyle=dash, linewidth=1.4))
    axes.axhline(1.0, color=INK, linewidth=0.9, linestyle=(0, (3, 2)))
    axes.set_ylim(0, 1.03)
    axes.set_title("lower bounds on f(retained) / opt")
    axes.set_ylabel("share of the best value of the step")
    axes.set_xlabel("step t (tokens)")
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(-0.02, -0.16), fontsize=6.8)


def _draw_conditions(axes, guarantee):
    largest = guarantee.steps.groupby("step")[[name for name, *_ in _CONDITIONS]].max()
    handles = []
    for name, label, colour, marker in _CONDITIONS:
        values = largest[name].iloc[1:]
        drawn = values.where(values >= _SMALLEST)
        axes.plot(values.index, drawn, color=colour, linestyle="none", marker=marker, markersize=2)
        if not drawn.notna().any():
            label += " (never)"
        handles.append(legend_line(label, color=colour, linestyle="none", marker=marker))
    allowed = 1 / (10 * guarantee.tokens)
    axes.axhline(allowed, color=INK, linewidth=0.9, linestyle=(0, (3, 2)))
    axes.annotate(
        plain(f"1 / (10 n) = {allowed:.1e}"), (1, allowed), xycoords=("axes fraction", "data"),
        ha="right", va="bottom", fontsize=6.8, color=INK,
        bbox={"facecolor": PAPER, "edgecolor": "none", "alpha": 0.8, "pad": 1},
    )  # fmt: skip
    axes.set_yscale("log")
    top = float(np.nanmax([largest.to_numpy().max(), 10 * allowed]))
    axes.set_ylim(_SMALLEST, max(2 * top, 1e-2))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_title("measured conditions (lower is better)")
    axes.set_ylabel("share lost in one step (log)")
    axes.set_xlabel("step t (tokens)")
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(-0.02, -0.16), fontsize=6.8)
