"""Perplexity along a long text."""

from collections import Counter

from matplotlib.ticker import FuncFormatter

from h2o_theory.budgets import parse_budget
from h2o_theory.figures.live import LiveSetting
from h2o_theory.figures.style import blank, draw_series, log_numbers, plain, styled

__all__ = ["running_figure"]

POLICIES = {"full cache": "full", "sinks + recent": "sink"}
"""Policies of the arms that do not go by their name."""


@styled
def running_figure(result):
    """Draw the perplexity of each arm on successive stretches of the text.

    Parameters
    ----------
    result : ExperimentResult
        Of :func:`h2o_theory.experiments.streaming.long_text`.

    Returns
    -------
    matplotlib.figure.Figure
    """
    setting, running = result.setting, result.extra["running"]
    stretch = int((running["last"] - running["first"]).max())
    entries = parse_budget(setting["budget"]).resolve(setting["tokens"])
    figure = blank(
        "Perplexity along a long text",
        f"Each policy holds {entries} entries per kv_head; each point is the perplexity of a "
        f"stretch of {stretch} tokens, lower is better. The text decides how hard a stretch is, so "
        "only the distances between the lines compare policies.",
        LiveSetting(
            model=setting["id"],
            text=setting["text"],
            tokens=setting["tokens"],
            windows=setting["windows"],
            scored=int(result.table["n"].max()),
            positions=setting["positions"],
        ),
        height=3.8,
    )
    axes, drawn = figure.subplots(), Counter()
    for arm, rows in running.groupby("arm", sort=False):
        policy = POLICIES.get(arm, arm.partition(":")[0])
        middle = (rows["first"] + rows["last"]) / 2
        draw_series(axes, middle, rows["perplexity"], policy, drawn[policy], label=arm)
        drawn[policy] += 1
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    log_numbers(axes.yaxis, high / low)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel(plain("position in the text  (tokens)"))
    axes.set_ylabel("perplexity  (log, lower is better)")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")
    return figure
