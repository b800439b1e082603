"""Sparsity of attention by layer, counted over causal entries and over the whole square."""

from matplotlib.ticker import MaxNLocator

from h2o_theory.attention import SPARSITY_THRESHOLD
from h2o_theory.figures.style import INK, MUTED, blank, legend_below_title, legend_line, styled
from h2o_theory.figures.table import HEAD, Setting, every, require_results

__all__ = ["PAPER_CLAIM", "sparsity_figure"]

PAPER_CLAIM = 0.95
"""Share of entries the H2O paper calls negligible "in almost all layers" (section 3.1)."""

_COUNTS = (
    ("sparsity_causal", "causal entries alone", "#2478b8", "o", (0, ())),
    ("sparsity_square", "whole T × T square, future counted as zeros", "#e69f00", "s", (0, (5, 2))),
)


@styled
def sparsity_figure(results):
    """Draw the share of negligible attention entries of each layer, by both ways to count.

    An entry is negligible when it is below 1 % (`SPARSITY_THRESHOLD`) of the row's maximum. Over
    the causal entries alone it says how sparse the model attends; counted over the whole square
    the never-computed future adds almost one half for free. A line is the mean over a layer's
    kv_heads, a small mark one kv_head; the H2O paper's claim is marked.

    Parameters
    ----------
    results : DataFrame
        A result table of `h2o_theory.replay`; `sparsity_causal` and `sparsity_square` are shares
        in [0, 1] and belong to the head, whatever the policy and budget of the row.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    BadArgument
        The table is unfit.
    """
    require_results(results)
    setting = Setting.of(results)
    heads = results.drop_duplicates(HEAD).sort_values("layer")
    layers = sorted(heads["layer"].unique())
    place = {layer: number for number, layer in enumerate(layers)}
    figure = blank(
        "Sparsity of attention by layer",
        f"Share of entries below {SPARSITY_THRESHOLD:.0%} of the maximum of their row, from the "
        f"recorded rows (no budget, no eviction). Line: mean over the kv_heads of a layer; small "
        f"mark: one kv_head.",
        setting,
        height=3.7,
    )
    axes = figure.subplots()
    handles = []
    for column, label, colour, marker, dash in _COUNTS:
        shares = 100 * heads[column]
        means = shares.groupby(heads["layer"]).mean()
        axes.scatter(heads["layer"].map(place), shares, s=9, marker=marker, color=colour,
                     alpha=0.4, linewidths=0)  # fmt: skip
        axes.plot(range(len(layers)), means, color=colour, marker=marker, linestyle=dash)
        handles.append(legend_line(label, color=colour, marker=marker, linestyle=dash))
    axes.axhline(100 * PAPER_CLAIM, color=INK, linewidth=0.9, linestyle=(0, (3, 2)))
    claim = f"{100 * PAPER_CLAIM:.0f} %, the paper's claim"
    handles.append(legend_line(claim, color=INK, linewidth=0.9, linestyle=(0, (3, 2))))
    shown = every(range(len(layers)), 32)
    axes.set_xticks(shown, [str(layers[number]) for number in shown])
    axes.set_xlabel("layer")
    axes.set_ylabel("sparsity  (% of entries,\nhigher means fewer keys matter)")
    axes.set_ylim(top=101)
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.tick_params(color=MUTED)
    legend_below_title(figure, handles)
    return figure
