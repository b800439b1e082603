"""Accumulated attention against rank, on logarithmic axes, with the fitted power law."""

import numpy as np

from h2o_theory.errors import BadArgument
from h2o_theory.figures.style import INK, MUTED, blank, log_numbers, styled
from h2o_theory.figures.subject import Subject

__all__ = ["rank_mass_figure"]

LAW, DATA = "#d55e00", "#2478b8"
_PANELS = (("positions without sinks", "position"), ("words without sinks", "word"))


@styled
def rank_mass_figure(analysis):
    """Draw accumulated attention by rank for positions and for words, with the fits.

    A power law of exponent a is a straight line of slope -1 / (a - 1) here. The dashed line is
    what positions would accumulate if every row attended evenly to its keys.

    Parameters
    ----------
    analysis : Analysis

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    BadArgument
        No position besides the sinks receives attention.
    """
    subject = Subject.of(analysis)
    amounts = {panel: values for panel, values in _amounts(analysis).items() if values.any()}
    if not amounts:
        raise BadArgument("no position besides the sinks receives attention", where="tokens")
    figure = blank(
        "Accumulated attention by rank",
        "Each point is a position (left) or a word with all its occurrences (right); mean over "
        "query heads, sinks set apart. Orange: the power law fitted to the tail, to the left of "
        "x_min. Dashed: positions under even attention.",
        subject,
        height=3.9,
    )
    panels = figure.subplots(1, len(amounts), squeeze=False)[0]
    laws = analysis.tables["power_law"]
    for axes, ((sample, noun), values) in zip(panels, amounts.items(), strict=True):
        ordered = np.sort(values[values > 0])[::-1]
        rank = np.arange(1, len(ordered) + 1)
        axes.plot(rank, ordered, ".", color=DATA, markersize=3, label=f"{noun}s", zorder=3)
        if noun == "position":
            _even(axes, subject)
        fitted = (
            laws[(laws["sample"] == sample) & (laws.scope == "all heads")] if len(laws) else laws
        )
        title = f"{len(ordered)} {noun}s"
        if len(fitted):
            _law(axes, fitted.iloc[0])
        else:
            title += ": not enough for a fit"
        axes.set_title(title)
        _log_axes(axes, rank, ordered)
        axes.set_xlabel(f"rank of the {noun}")
        axes.legend(loc="lower left")
    panels[0].set_ylabel("accumulated attention\n(sum over rows, in rows)")
    return figure


def _amounts(analysis):
    survey, first = analysis.survey, analysis.survey.n_sink
    received = survey.received()
    amounts = {_PANELS[0]: received[first:]}
    if analysis.words is not None and len(analysis.words.kinds):
        bare = np.where(np.arange(survey.tokens) >= first, received, 0)
        amounts[_PANELS[1]] = analysis.words.per_kind(bare)
    return amounts


def _even(axes, subject):
    seen = np.cumsum(1.0 / np.arange(1, subject.tokens + 1)[::-1])[::-1][subject.n_sink :]
    ordered = np.sort(seen)[::-1]
    axes.plot(
        np.arange(1, len(ordered) + 1), ordered, color=MUTED, linestyle=(0, (5, 2)),
        linewidth=1, label="even attention",
    )  # fmt: skip


def _law(axes, law):
    rank = np.geomspace(1, law["tail"], 50)
    values = law.x_min * (rank / law["tail"]) ** (-1 / (law.exponent - 1))
    # No replicate as far off as the sample bounds p from above; it does not make p nothing.
    p = f"= {law.p:.3f}" if law.p else f"< {law.p_high:.3f}"
    text = f"exponent {law.exponent:.2f} [{law.low:.2f}, {law.high:.2f}],\nfit p {p}: {law.verdict}"
    axes.plot(rank, values, color=LAW, linewidth=1.6, label=text, zorder=4)
    axes.axvline(law["tail"], color=INK, linewidth=0.7, linestyle=(0, (1.2, 1.8)))


def _log_axes(axes, rank, ordered):
    axes.set_xscale("log")
    axes.set_yscale("log")
    if len(ordered):
        log_numbers(axes.xaxis, max(2.1, rank[-1]))
        log_numbers(axes.yaxis, max(2.1, ordered[0] / ordered[-1]))
