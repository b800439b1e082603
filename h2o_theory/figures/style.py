"""The house style of the figures: the style sheet, the shared inks, titles and captions."""

import functools
import math
import textwrap
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from h2o_theory.figures.looks import INK, policy_look

__all__ = [
    "GRID",
    "INK",
    "MUTED",
    "PAPER",
    "STYLE",
    "blank",
    "draw_centre",
    "draw_series",
    "legend_below_title",
    "legend_line",
    "log_numbers",
    "middle_half",
    "plain",
    "styled",
]

STYLE = Path(__file__).with_name("house.mplstyle")
PAPER, GRID, MUTED = "#fcfcfb", "#e3e5e8", "#6b7280"
"""Inks of `STYLE`, beside INK. The page swaps these four for its own, light or dark."""


_LOG_STEPS = (
    (6, (1, 1.5, 2, 3, 4, 5)),
    (60, (1, 2, 5)),
    (3000, (1, 3)),
    (math.inf, (1,)),
)
"""Numbered steps of a decade, by the largest ratio of the ends of the axis they suit."""


def styled(function):
    """Run `function` under the house style, and leave matplotlib's settings as they were."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        with mpl.rc_context(fname=STYLE):
            return function(*args, **kwargs)

    return wrapper


def blank(title, caption, setting, *, height, width=7.4):
    """An empty figure with a bold title above and a muted caption below, both to the left.

    Parameters
    ----------
    title, caption : str
        Plain text; the caption says how to read the figure.
    setting : Setting
        Its sentence ends the caption, on a line of its own.
    height, width : float
        Inches.

    Returns
    -------
    Figure
    """
    figure = Figure(figsize=(width, height))
    figure.suptitle(plain(title), x=0.012, ha="left")
    lines = textwrap.wrap(caption, int(17.6 * width))
    lines += textwrap.wrap(setting.sentence(), int(17.6 * width))
    figure.supxlabel(plain("\n".join(lines)), x=0.012, ha="left", color=MUTED, linespacing=1.35)
    return figure


def plain(text):
    """Text that matplotlib draws as written: a dollar sign does not start a formula."""
    return str(text).replace("$", r"\$")


def draw_series(axes, x, y, policy, variant=0, *, label=None):
    """Draw one policy's points, joined by its dashes, in its own look."""
    look = policy_look(policy, variant)
    axes.plot(
        x,
        y,
        color=look.colour,
        marker=look.marker,
        markerfacecolor=PAPER if look.hollow else look.colour,
        linestyle=look.dash,
        linewidth=look.width,
        markersize=7.5 if look.marker == "*" else 4.6,
        label=plain(label or policy),
        zorder=4 if policy in ("h2o", "optimum") else 3,
        clip_on=False,
    )


def draw_centre(axes, x, y, policy, variant=0):
    """Mark the centre of one policy's values by its own marker, with an edge off the dots."""
    look = policy_look(policy, variant)
    axes.plot(
        [x],
        [y],
        linestyle="none",
        marker=look.marker,
        markersize=7,
        color=look.colour,
        markerfacecolor=PAPER if look.hollow else look.colour,
        markeredgecolor=look.colour if look.hollow else PAPER,
        markeredgewidth=1.3 if look.hollow else 0.8,
        zorder=5,
        clip_on=False,
    )


def middle_half(axes, values, place):
    """A grey bar from the first to the third quartile of the values, lying at height `place`."""
    ends = np.quantile(values, [0.25, 0.75])
    axes.plot(ends, [place, place], color=MUTED, linewidth=3.6, alpha=0.55, zorder=4,
              solid_capstyle="butt")  # fmt: skip


def log_numbers(axis, high_over_low):
    """Plain numbers on a log axis, at more steps of a decade the fewer decades it spans."""
    if high_over_low < 2:
        axis.set_major_locator(MaxNLocator(4))
        axis.set_minor_locator(NullLocator())
    else:
        steps = next(steps for most, steps in _LOG_STEPS if high_over_low < most)
        axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def legend_below_title(figure, handles):
    """Put a one-line legend on a line of its own below the title, across the whole figure."""
    figure.suptitle(figure.get_suptitle() + "\n\n", x=0.012, ha="left")
    line = 0.27 / figure.get_figheight()
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0, 1 - line), ncols=4)


def legend_line(label, **look):
    """A legend entry that stands for something drawn by hand."""
    return Line2D([], [], label=plain(label), **look)
