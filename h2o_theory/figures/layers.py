"""Sparsity and support of attention rows, by layer, distance and length of the row."""

import numpy as np
from matplotlib.ticker import FuncFormatter

from h2o_theory.figures.sparsity import PAPER_CLAIM
from h2o_theory.figures.style import INK, MUTED, blank, styled
from h2o_theory.figures.subject import Subject
from h2o_theory.figures.table import every

__all__ = ["layer_sparsity_figure", "support_figure"]

CAUSAL, SQUARE = "#2478b8", "#e69f00"
_MASSES = ((0.90, "#8667c9", "o"), (0.95, "#36a3a0", "s"), (0.99, "#d55e00", "^"))


@styled
def layer_sparsity_figure(analysis):
    """Draw sparsity by layer in both countings, by distance, and by length of the row.

    Parameters
    ----------
    analysis : Analysis

    Returns
    -------
    matplotlib.figure.Figure
    """
    subject, tables = Subject.of(analysis), analysis.tables
    figure = blank(
        "Sparsity of attention",
        f"Share of entries below {100 * analysis.survey.threshold:g} % of their row's maximum. "
        f"Top: line: layer, dots: its query heads, bar: 95 % interval over blocks of rows. Bottom: "
        f"causal entries alone, mean over layers and the middle half of them.",
        subject,
        height=5.6,
    )
    grid = figure.add_gridspec(2, 2)
    top = figure.add_subplot(grid[0, :])
    layers, heads = tables["sparsity_by_layer"], tables["sparsity_by_head"]
    place = {layer: number for number, layer in enumerate(layers.layer)}
    for column, label, colour, marker in (
        ("causal", "causal entries alone", CAUSAL, "o"),
        ("square", "whole square, future as zeros", SQUARE, "s"),
    ):
        top.scatter(
            heads.layer.map(place), 100 * heads[column], s=7, color=colour, alpha=0.35, linewidths=0
        )
        top.plot(
            range(len(layers)), 100 * layers[column], color=colour, marker=marker, label=label,
            markersize=4,
        )  # fmt: skip
    if "low" in layers:
        top.vlines(range(len(layers)), 100 * layers.low, 100 * layers.high, color=INK, linewidth=1)
    top.axhline(
        100 * PAPER_CLAIM, color=INK, linewidth=0.9, linestyle=(0, (3, 2)),
        label=f"{100 * PAPER_CLAIM:.0f} %, the paper's claim",
    )  # fmt: skip
    _layer_axis(top, layers.layer)
    top.set_ylabel("sparsity\n(% of entries)")
    top.set_ylim(top=101)
    top.legend(loc="lower right", ncols=3)
    _spread(
        figure.add_subplot(grid[1, 0]), tables["sparsity_by_distance"], "distance",
        "distance t − j  (tokens)",
    )  # fmt: skip
    length = tables["sparsity_by_length"]
    length = length.assign(rows=length.row_from.astype(str) + "-" + length.row_to.astype(str))
    _spread(figure.add_subplot(grid[1, 1]), length, "rows", "length of the row  (keys)")
    return figure


def _spread(axes, table, column, label):
    """Mean and middle half over layers of the sparse share, by a column of names."""
    names = list(dict.fromkeys(table[column]))
    groups = [100 * table.loc[table[column] == name, "sparse"] for name in names]
    low, high = (np.array([np.quantile(group, q) for group in groups]) for q in (0.25, 0.75))
    at = range(len(names))
    axes.fill_between(at, low, high, color=CAUSAL, alpha=0.2, linewidth=0)
    axes.plot(at, [group.mean() for group in groups], color=CAUSAL, marker="o", markersize=4)
    axes.set_xticks(list(at), names, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_xlabel(label)
    axes.set_ylabel("sparsity  (% of entries)")
    axes.set_ylim(0, 101)


@styled
def support_figure(analysis):
    """Draw the share of a row's keys that hold 90, 95 and 99 % of its mass, by layer.

    Parameters
    ----------
    analysis : Analysis

    Returns
    -------
    matplotlib.figure.Figure
    """
    subject, table = Subject.of(analysis), analysis.tables["support"]
    figure = blank(
        "Keys that hold most of a row",
        "Least share of a row's keys that hold 90, 95 and 99 % of its attention, chosen for each "
        "row on its own: no cache with one set for all rows can do with less. Mean over rows and "
        "query heads, bar: 95 % interval over blocks of rows. Dotted: 5 %, a cache 20 times "
        "smaller.",
        subject,
        height=3.7,
    )
    axes = figure.subplots()
    layers = list(dict.fromkeys(table.layer))
    for mass, colour, marker in _MASSES:
        rows = table[np.isclose(table.mass, mass)]
        axes.plot(
            range(len(rows)), rows.row_share, color=colour, marker=marker,
            label=f"{100 * mass:.0f} % of the mass",
        )  # fmt: skip
        if "low" in rows:
            axes.vlines(range(len(rows)), rows.low, rows.high, color=colour, linewidth=1.5)
    axes.axhline(0.05, color=MUTED, linestyle=":", linewidth=1)
    _layer_axis(axes, layers)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g}"))
    axes.yaxis.set_minor_formatter(
        FuncFormatter(lambda value, _: f"{100 * value:.3g}" if f"{value:.0e}"[0] in "25" else "")
    )
    axes.set_ylabel("share of the row's keys\n(%, log, lower means fewer keys matter)")
    axes.legend(loc="upper right", ncols=3)
    return figure


def _layer_axis(axes, layers):
    layers = list(layers)
    shown = every(range(len(layers)), 32)
    axes.set_xticks(shown, [str(layers[number]) for number in shown])
    axes.set_xlabel("layer")
