"""Do layers agree on the heavy hitters, and what does attention go with?"""

from h2o_theory.errors import BadArgument
from h2o_theory.figures.style import INK, MUTED, blank, legend_below_title, legend_line, styled
from h2o_theory.figures.subject import Subject
from h2o_theory.figures.table import every

__all__ = ["association_figure", "overlap_figure"]

_NAMES = {
    "cooccurrences": "co-occurrences\n(weighted degree)",
    "neighbours": "different neighbours",
    "mean_pmi": "mean PMI",
    "pagerank": "PageRank",
    "core": "core number",
}
_MARKS = (
    ("Spearman", "as it is", "#2478b8", "o"),
    ("within frequency", "permuted among equally frequent words", "#e69f00", "D"),
    ("partial", "frequency, position, exposure fixed", "#d55e00", "s"),
)


@styled
def overlap_figure(analysis):
    """Draw the overlap of final heavy hitters between layers as a matrix.

    Parameters
    ----------
    analysis : Analysis

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    BadArgument
        There are no two kv_heads to compare.
    """
    table = analysis.tables["overlap_layers"]
    if table.empty:
        raise BadArgument("there are no two kv_heads to compare", where="layers, kv_heads")
    subject = Subject.of(analysis)
    heavy = subject.heavy_hitters()
    figure = blank(
        "Do layers share their heavy hitters?",
        f"Share of the heavy hitters of a kv_head of one layer (at the end of the text: "
        f"{heavy}) that are also those of a kv_head of the other; mean over pairs of "
        f"different kv_heads. Random sets share {100 * subject.share:g} %.",
        subject,
        height=5.4,
    )
    axes = figure.subplots()
    matrix = table.pivot(index="layer_a", columns="layer_b", values="overlap")
    n = len(matrix)
    mesh = axes.pcolormesh(matrix.to_numpy(), cmap="cividis", vmin=0)
    axes.set_aspect("equal")
    axes.set_anchor("W")
    axes.grid(visible=False)
    shown = every(range(n), 16)
    ticks = [place + 0.5 for place in shown], [str(matrix.index[place]) for place in shown]
    axes.set_xticks(*ticks)
    axes.set_yticks(*ticks)
    axes.set_xlabel("layer")
    axes.set_ylabel("layer")
    bar = figure.colorbar(mesh, ax=axes, aspect=30, pad=0.015)
    bar.outline.set_visible(False)
    bar.set_label("overlap  (share of the set, brighter: more in common)")
    return figure


@styled
def association_figure(analysis):
    """Draw what correlates with the attention of words, plain and with controls held fixed.

    Parameters
    ----------
    analysis : Analysis

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    BadArgument
        No correlation could be computed.
    """
    table = analysis.tables.get("cooccurrence")
    if table is None or table.empty:
        raise BadArgument("no correlation could be computed", where="words")
    subject, control = Subject.of(analysis), analysis.tables["control"]
    figure = blank(
        "Attention of words against their place in the co-occurrence graph",
        f"Spearman's rank correlation over {table.words.iloc[0]} words, 95 % intervals over "
        f"resampled words (diamond: range over permutations). Zero: no relation."
        + (f" Bottom row: {control.kind.iloc[0]}." if len(control) else ""),
        subject,
        height=3.9,
    )
    axes = figure.subplots()
    names = list(dict.fromkeys(table.centrality))
    labels = [_NAMES.get(name, name) for name in names]
    for place, name in enumerate(names):
        for shift, (statistic, _, colour, marker) in enumerate(_MARKS):
            rows = table[(table.centrality == name) & (table.statistic == statistic)]
            for row in rows.itertuples():
                _bar(axes, row, place + 0.22 * (shift - 1), colour, marker)
    if len(control):
        labels.append("co-occurrences,\norder lost")
        looks = {statistic: (colour, marker) for statistic, _, colour, marker in _MARKS}
        for shift, row in enumerate(control.itertuples()):
            _bar(axes, row, len(names) + 0.3 * (shift - 0.5), *looks[row.statistic])
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xlim(-1.02, 1.02)
    axes.set_xlabel("rank correlation with accumulated attention")
    axes.tick_params(color=MUTED)
    legend_below_title(
        figure,
        [
            legend_line(label, color=colour, marker=marker, linestyle="none")
            for _, label, colour, marker in _MARKS
        ],
    )
    return figure


def _bar(axes, row, place, colour, marker):
    axes.plot([row.low, row.high], [place, place], color=colour, linewidth=1.6)
    axes.plot([row.value], [place], color=colour, marker=marker, markersize=5)
