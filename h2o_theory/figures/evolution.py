"""How far the heavy hitters so far are those to come, and how long one stays one."""

from h2o_theory.errors import BadArgument
from h2o_theory.figures.style import INK, MUTED, blank, styled
from h2o_theory.figures.subject import Subject

__all__ = ["evolution_figure"]

_LINES = (
    ("local_final", "past, and still so at the end", "#2478b8", (0, ())),
    ("global_future", "whole text, and so by the future", "#e69f00", (0, (5, 2))),
    ("local_future", "past, and so by the future", "#d55e00", (0, ())),
)


@styled
def evolution_figure(analysis):
    """Draw the overlap of heavy hitters by past, future and all attention, and their survival.

    Parameters
    ----------
    analysis : Analysis

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    BadArgument
        The text is too short to have a past and a future.
    """
    table, survival = analysis.tables["evolution"], analysis.tables["survival"]
    if table.empty or survival.empty:
        raise BadArgument("the text is too short to have a past and a future", where="tokens")
    subject = Subject.of(analysis)
    heavy = subject.heavy_hitters()
    figure = blank(
        "Heavy hitters: past against future",
        f"A heavy hitter is one of {heavy}. Left: share of the heavy hitters by past "
        f"attention (or by the whole text's) that are so by the attention still to come, or at "
        f"the end; line: mean over kv_heads, band: middle half. Right: share of stays in the set "
        f"that last at least so long (Kaplan-Meier, all kv_heads).",
        subject,
        height=3.9,
    )
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
    for column, label, colour, dash in _LINES:
        left.fill_between(
            table.step, table[f"{column}_q25"], table[f"{column}_q75"], color=colour, alpha=0.15,
            linewidth=0,
        )  # fmt: skip
        left.plot(table.step, table[column], color=colour, linestyle=dash, label=label)
    left.plot(table.step, table.chance, color=MUTED, linestyle=":", label="random sets")
    left.set_xlabel("step t  (tokens read)")
    left.set_ylabel("overlap  (share of the set,\nhigher is more in common)")
    left.set_ylim(0, 1.02)
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    right.step(survival.steps, survival.lasting, where="post", color=INK)
    right.set_xscale("log")
    right.set_xlabel("length of a stay  (steps, log)")
    right.set_ylabel("share of stays that last longer")
    right.set_ylim(0, 1.02)
    return figure
