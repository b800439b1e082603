"""The best static split of a total budget over the heads of a trace."""

import numpy as np

from h2o_theory.figures.style import INK, MUTED, blank, plain, styled
from h2o_theory.figures.table import every, spread

__all__ = ["allocation_figure"]

MOST_PANELS = 3
_BARS = ("#2478b8", "#8ab6d9")


@styled
def allocation_figure(allocation, splits, setting):
    """Draw how many entries the best static split gives each kv_head, one panel per budget.

    Parameters
    ----------
    allocation, splits : DataFrame
        Those tables of :func:`h2o_theory.certified_optimum`.
    setting : Setting
        Model, trace and length, for the caption.

    Returns
    -------
    matplotlib.figure.Figure
    """
    shown = spread(splits.sort_values("budget_tokens").itertuples(index=False), MOST_PANELS)
    figure = blank(
        "Which heads want the budget: the exact best static split",
        "Each bar: KV entries of one kv_head when the total is split so that the heads retain most "
        "attention together, each under its exact optimum; layers alternate in colour. Dashed: "
        "the same for every head. Retained mass (mean over heads and rows, higher is better) is "
        "above each panel.",
        setting,
        height=1.3 + 1.45 * len(shown),
    )
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for axes, split in zip(panels, shown, strict=True):
        heads = allocation[allocation["budget"] == split.budget].reset_index(drop=True)
        layers = list(dict.fromkeys(heads["layer"]))
        colours = [_BARS[layers.index(layer) % 2] for layer in heads["layer"]]
        axes.bar(heads.index, heads["split_tokens"], color=colours, width=0.85)
        axes.axhline(split.budget_tokens, color=INK, linewidth=0.9, linestyle=(0, (3, 2)))
        axes.set_title(plain(_headline(split, setting)))
        axes.set_ylabel("entries of\nthe kv_head")
        axes.grid(visible=False, axis="x")
    middles = heads.groupby("layer", sort=False).apply(lambda rows: np.mean(rows.index))
    ticks = every(range(len(layers)), 32)
    panels[-1].set_xticks(middles.iloc[ticks], [str(layers[number]) for number in ticks])
    panels[-1].tick_params(axis="x", length=0, color=MUTED)
    panels[-1].set_xlabel("layer (its kv_heads side by side)")
    return figure


def _headline(split, setting):
    text = (
        f"{setting.budget(split.budget_tokens)} a head: even {split.even_mass:.4f}, "
        f"best split {split.split_mass:.4f}"
    )
    if np.isfinite(split.pooled_mass):
        text += f", no division above {split.pooled_mass:.4f}"
    return text
