"""What a throughput is made of, and what a budget buys: two figures of the cost model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from h2o_theory.costs.claims import Decomposition
from h2o_theory.errors import BadArgument
from h2o_theory.figures.looks import policy_look
from h2o_theory.figures.style import INK, MUTED, PAPER, blank, draw_series, log_numbers, styled

__all__ = ["CostSetting", "frontier_figure", "waterfall_figure"]

_CACHE, _SYSTEM, _REST = "#d55e00", "#2478b8", "#8b919b"
_BUDGET_WORDS = ("cache", "bookkeeping", "budget")


@dataclass(frozen=True)
class CostSetting:
    """The last line of a caption: what was measured, and by what the rest was computed."""

    text: str

    def sentence(self) -> str:
        """The line."""
        return self.text


@styled
def waterfall_figure(parts: Sequence[tuple[str, Decomposition]], setting: CostSetting) -> Figure:
    """Draw ratios as products: each bar starts where the last one ended.

    Parameters
    ----------
    parts : sequence of (str, Decomposition)
        Headings and what stands below them, from above to below.
    setting : CostSetting

    Returns
    -------
    matplotlib.figure.Figure
    """
    if not parts:
        raise BadArgument("there must be at least one ratio to draw")
    rows = sum(len(part.all_factors) + 2 for _, part in parts)
    figure = blank(
        "What the published speed-ups are made of",
        "Each ratio of H2O's throughput to that of another system, as a product of factors by the "
        "cost model, changed one after the other from above to below; log axis. Orange: what a "
        "smaller cache does. Blue: what the system does, with the full cache. Grey: what the model "
        "leaves. Another order would give other factors with the same product.",
        setting,
        height=1.15 + 0.185 * rows,
    )
    axes = figure.subplots()
    place, ends = 0.0, [1.0]
    for heading, part in parts:
        axes.text(
            0.0, place, heading, weight="bold", va="center", zorder=5,
            transform=axes.get_yaxis_transform(),
            bbox={"pad": 1.2, "facecolor": PAPER, "edgecolor": "none"},
        )  # fmt: skip
        place += 1
        reached = 1.0
        for name, factor in part.all_factors:
            _bar(axes, place, reached, factor, name)
            reached *= factor
            ends.append(reached)
            place += 1
        place += 1
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_ylim(place - 1.2, -0.8)
    axes.set_xscale("log")
    axes.set_xlim(0.17, 1.35 * max(ends))
    ticks = [tick for tick in (1, 2, 3, 5, 10, 20, 30, 50, 100) if tick <= 1.3 * max(ends)]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.yaxis.set_major_locator(NullLocator())
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("throughput over the baseline  (log)")
    return figure


def _bar(axes: Any, place: float, start: float, factor: float, name: str) -> None:
    mine = any(word in name for word in _BUDGET_WORDS) and "full" not in name
    colour = _REST if name.startswith("not") else _CACHE if mine else _SYSTEM
    left, right = sorted((start, start * factor))
    axes.barh(place, right - left, left=left, height=0.62, color=colour, zorder=3)
    if colour != _REST:
        axes.plot([start * factor] * 2, [place, place + 1], color=MUTED, linewidth=0.6, zorder=2)
    axes.text(0.985 * min(1.0, left), place, name + "  ", ha="right", va="center", fontsize=7.2)
    axes.text(1.02 * right, place, f"{factor:.2f}", ha="left", va="center", fontsize=7.2,
              bbox={"pad": 0.4, "facecolor": PAPER, "edgecolor": "none"},
              zorder=4)  # fmt: skip


@styled
def frontier_figure(table: Any, measure: str, setting: CostSetting) -> Figure:
    """Draw measured loss against tokens a second and against memory, by policy.

    Parameters
    ----------
    table : DataFrame
        policy, budget, tokens_per_second, device_gib and loss; a point needs a loss.
    measure : str
        What the loss is, for the axis.
    setting : CostSetting

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    BadArgument
        If no line has a loss.
    """
    known = table[table["loss"].notna()]
    if known.empty:
        raise BadArgument(
            "at least one policy and budget must have a measured loss",
            hint="Name policies and budgets that the results hold",
        )
    figure = blank(
        "What a budget buys, and what it costs",
        "Left: loss against tokens per second, at the largest batch that fits or the one asked "
        "for. Right: the same against peak memory of the device. Lower is better; further right "
        "on the left, further left on the right. Numbers are budgets.",
        setting,
        height=4.0,
    )
    left, right = figure.subplots(1, 2, sharey=True)
    for policy, rows in known.groupby("policy", sort=False):
        name = str(policy).partition(":")[0]
        rows = rows.sort_values("tokens_per_second")
        draw_series(left, rows["tokens_per_second"], rows["loss"], name, label=str(policy))
        draw_series(right, rows["device_gib"], rows["loss"], name)
        for row in rows.itertuples():
            left.annotate(
                row.budget, (row.tokens_per_second, row.loss), xytext=(4, 4),
                textcoords="offset points", fontsize=6.5, color=policy_look(name).colour,
            )  # fmt: skip
    for axes, label in ((left, "tokens per second  (log)"), (right, "peak memory  (GiB)")):
        axes.axhline(0, color=INK, linewidth=0.8, linestyle=":")
        axes.set_xlabel(label)
    left.set_xscale("log")
    low, high = left.get_xlim()
    log_numbers(left.xaxis, high / low)
    left.xaxis.set_minor_formatter(NullFormatter())
    left.set_ylabel(measure)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center")
    return figure
