"""Approximation ratio by layer and kv_head."""

import numpy as np
from matplotlib.patches import Rectangle

from h2o_theory.errors import BadArgument
from h2o_theory.figures.series import label_series
from h2o_theory.figures.style import GRID, PAPER, blank, plain, styled
from h2o_theory.figures.table import Setting, every, is_compared, is_policy, require_results, spread

__all__ = ["head_figure", "head_subject"]

MOST_PANELS = 3
MOST_LABELLED_COLUMNS = 14
LEAST_COLUMNS = 6


def head_subject(results, policy="h2o"):
    """The series that `head_figure` draws: `policy` if it has ratios, else the first that has.

    Parameters
    ----------
    results : DataFrame
        A result table of `h2o_theory.replay`.
    policy : str
        Name of the policy wished for, whose first variant is taken, or the label of a series.

    Returns
    -------
    str
        A label of `label_series`.

    Raises
    ------
    BadArgument
        No policy other than `optimum` has an approximation ratio.
    """
    require_results(results)
    table = label_series(results[is_policy(results)])
    table = table[is_compared(table) & table["approximation_ratio"].notna()]
    if table.empty:
        raise BadArgument(
            "there is no approximation ratio to draw by layer and kv_head",
            where="approximation_ratio",
            got="policies " + ", ".join(results["policy"].astype(str).unique()),
            expected="h2o or another policy compared with the exact optimum",
        )
    wished = table[(table["policy_name"] == policy) | (table["series"] == policy)]
    return str((table if wished.empty else wished).iloc[0]["series"])


@styled
def head_figure(results, policy="h2o"):
    """Draw the approximation ratio of one policy as a map of layers (across) and kv_heads (up).

    One map for each budget, at most three, on one colour scale: brighter is better, 1 is the exact
    optimum. The worst kv_head of each map is framed and named. Several traces are averaged.

    Parameters
    ----------
    results : DataFrame
        A result table of `h2o_theory.replay`.
    policy : str
        The policy to draw; see `head_subject` for what is drawn when the table lacks it.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    BadArgument
        The table is unfit, or no policy other than `optimum` has an approximation ratio.
    """
    subject = head_subject(results, policy)
    setting = Setting.of(results)
    table = label_series(results[is_policy(results)])
    rows = table[(table["series"] == subject) & table["approximation_ratio"].notna()]
    maps = {
        budget: rows[rows["budget_tokens"] == budget].pivot_table(
            index="kv_head", columns="layer", values="approximation_ratio"
        )
        for budget in spread(sorted(rows["budget_tokens"].unique()), MOST_PANELS)
    }
    heads, layers = (sorted(rows[name].unique()) for name in ("kv_head", "layer"))
    cell = min(0.3, max(0.11, 4.0 / (len(heads) * len(maps))))
    figure = blank(
        f"Approximation ratio of {subject} by layer and kv_head",
        f"J({subject}) / J(OPT) at the same budget: 1 is the exact optimum, higher (brighter) is "
        f"better. Framed: the worst kv_head. Hatched: not replayed.",
        setting,
        height=1.2 + len(maps) * (0.72 + cell * len(heads)),
    )
    panels = figure.subplots(len(maps), 1, sharex=True, squeeze=False)[:, 0]
    low = min(np.nanmin(ratios.to_numpy()) for ratios in maps.values())
    for axes, (budget, ratios) in zip(panels, maps.items(), strict=True):
        mesh = _map(axes, ratios.reindex(index=heads, columns=layers), low)
        axes.set_title(plain(f"{setting.budget(budget)}: {_summary(ratios)}"))
    panels[-1].set_xlabel("layer")
    bar = figure.colorbar(mesh, ax=list(panels), aspect=18, pad=0.015, shrink=0.9)
    bar.outline.set_visible(False)
    bar.set_label("approximation ratio" + ("\n" if len(maps) == 1 else " ") + "(higher is better)")
    return figure


def _summary(ratios):
    values = ratios.stack()
    layer, head = values.idxmin()[::-1]
    worst = f"worst {values.min():.4f} (layer {layer}, kv_head {head})"
    return f"mean {values.mean():.4f}, {worst}" if len(values) > 1 else worst


def _map(axes, ratios, low):
    """Draw one map, cells numbered if there are few; returns the mesh for the colour bar."""
    values = ratios.to_numpy()
    height, width = values.shape
    axes.add_patch(
        Rectangle((0, 0), width, height, hatch="////", facecolor=GRID, edgecolor=PAPER, linewidth=0)
    )
    mesh = axes.pcolormesh(
        values, cmap="cividis", vmin=min(low, 0.999), vmax=1.0, edgecolors=PAPER, linewidth=0.8
    )
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    _label_cells(axes.set_xticks, ratios.columns, 32)
    _label_cells(axes.set_yticks, ratios.index, 16)
    axes.set_ylabel("kv_head")
    axes.set_xlim(0, max(width, LEAST_COLUMNS))
    if np.isfinite(values).sum() > 1:
        row, column = np.unravel_index(np.nanargmin(values), values.shape)
        frame = {"edgecolor": "#d55e00", "linewidth": 1.8, "zorder": 5}
        axes.add_patch(Rectangle((column, row), 1, 1, fill=False, **frame))
    if width <= MOST_LABELLED_COLUMNS:
        _number_cells(axes, values, mesh)
    return mesh


def _label_cells(set_ticks, names, most):
    places = every(range(len(names)), most)
    set_ticks([place + 0.5 for place in places], [str(names[place]) for place in places])


def _number_cells(axes, values, mesh):
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            dark = mesh.norm(value) < 0.55
            axes.text(
                column + 0.5, row + 0.5, f"{value:.3f}", ha="center", va="center", fontsize=6.5,
                color="#ffffff" if dark else "#000000",
            )  # fmt: skip
