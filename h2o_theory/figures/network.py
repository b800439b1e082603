"""The co-occurrence graph of the text's words, heavy hitters marked."""

import numpy as np

from h2o_theory.dependencies import require
from h2o_theory.errors import BadArgument
from h2o_theory.figures.style import INK, MUTED, PAPER, blank, legend_line, plain, styled
from h2o_theory.figures.subject import Subject
from h2o_theory.statistics import top_count

__all__ = ["network_figure"]

MOST_WORDS = 60
HEAVY, LIGHT = "#d55e00", "#7fb2dc"


@styled
def network_figure(analysis, seed=0):
    """Draw the words that occur together most, sized by the attention they receive.

    Parameters
    ----------
    analysis : Analysis
    seed : int
        Of the layout.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    BadArgument
        No two words occur together, or words were not asked for.
    """
    if analysis.graph is None or not analysis.graph.number_of_edges():
        raise BadArgument("there are no two words that occur together", where="words")
    networkx, subject = require("networkx"), Subject.of(analysis)
    words = analysis.tables["words"]
    heavy = set(words.nlargest(top_count(subject.share, len(words)), "attention").word)
    shown = words.nlargest(MOST_WORDS, "cooccurrences")
    graph = analysis.graph.subgraph(shown.word).copy()
    window = analysis.graph.graph["window"]
    figure = blank(
        "Words that occur together, and the attention they receive",
        f"The {len(shown)} words with most co-occurrences (within {window} words) of "
        f"{len(words)}. Area: square root of accumulated attention. Orange: among the "
        f"{100 * subject.share:g} % of all words with most attention. Line: co-occurrence, "
        f"stronger when more often.",
        subject,
        height=6.2,
    )
    axes = figure.subplots()
    weights = {edge: graph.edges[edge]["weight"] for edge in graph.edges}
    # Square roots of counts: else the few function words pull everything into one point.
    for (a, b), weight in weights.items():
        graph.edges[a, b]["pull"] = weight**0.5
    place = networkx.spring_layout(
        graph, weight="pull", seed=seed, k=2.6 / np.sqrt(len(shown)), iterations=200
    )
    largest = max(weights.values())
    for (a, b), weight in weights.items():
        strength = (weight / largest) ** 0.5
        axes.plot(
            *zip(place[a], place[b], strict=True), color=MUTED, alpha=0.06 + 0.6 * strength,
            linewidth=0.3 + 2.2 * strength, zorder=1, solid_capstyle="round",
        )  # fmt: skip
    top = shown.attention.max()
    for row in shown.itertuples():
        x, y = place[row.word]
        axes.scatter(
            x, y, s=10 + 520 * (row.attention / top) ** 0.5, zorder=2, edgecolor=PAPER,
            linewidth=0.8, color=HEAVY if row.word in heavy else LIGHT,
        )  # fmt: skip
        axes.text(x, y, plain(row.word), fontsize=7, ha="center", va="center", color=INK, zorder=3)
    axes.set_axis_off()
    axes.margins(0.05)
    dot = {"linestyle": "none", "marker": "o", "markersize": 7}
    figure.legend(
        handles=[
            legend_line("heavy hitter", color=HEAVY, **dot),
            legend_line("other word", color=LIGHT, **dot),
        ],
        loc="outside upper right",
        ncols=2,
    )
    return figure
