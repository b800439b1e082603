"""Loss under eviction against budget, with intervals."""

from dataclasses import dataclass

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from h2o_theory.budgets import parse_budget
from h2o_theory.errors import BadArgument
from h2o_theory.figures.looks import policy_look
from h2o_theory.figures.series import label_series
from h2o_theory.figures.style import INK, blank, draw_series, log_numbers, plain, styled

__all__ = ["LiveSetting", "label_live", "ladder_figure", "loss_figure"]


@dataclass(frozen=True)
class LiveSetting:
    """What all cells of a campaign have in common, in the words that captions use.

    Attributes
    ----------
    model, text : str
    tokens, windows, scored : int
        Length of each window, windows, and tokens scored in all of them together.
    prefill : int
    positions : str
    """

    model: str
    text: str
    tokens: int
    windows: int
    scored: int
    prefill: int = 0
    positions: str = "original"

    def sentence(self):
        """Model, text, length and how it was run, as one caption line."""
        start = f"prefill of {self.prefill} rows" if self.prefill else "streaming (no prefill)"
        return (
            f"{self.model} · {self.text} · {self.windows} window(s) of T = {self.tokens} tokens, "
            f"n = {self.scored} predictions · {start} · {self.positions} positions · closed-loop"
        )


@styled
def loss_figure(summary, setting):
    """Draw perplexity and loss increase of each policy against the budget.

    Parameters
    ----------
    summary : DataFrame
        Of :func:`h2o_theory.live.summary.summarise`.
    setting : LiveSetting

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    BadArgument
        If the table holds no policy beside the full cache.
    """
    evicting = summary[summary["policy"] != "full"]
    if evicting.empty:
        raise BadArgument("only the full cache was run, so there is nothing to compare")
    table = label_live(evicting)
    figure = blank(
        "What eviction costs the running model",
        "Left: perplexity of the text while the policy evicts in every layer; the line is the full "
        "cache. Right: loss increase over the full cache on the same tokens; bars are 95 % "
        "intervals from resampling 32 stretches of the text, for this model and text alone.",
        setting,
        height=4.2,
    )
    left, right = figure.subplots(1, 2)
    for (series, policy, variant), rows in table.groupby(
        ["series", "policy", "variant"], sort=False
    ):
        rows = rows.sort_values("budget_tokens")
        draw_series(left, rows["budget_tokens"], rows["perplexity"], policy, variant, label=series)
        draw_series(right, rows["budget_tokens"], rows["loss_increase"], policy, variant)
        colour = policy_look(policy, variant).colour
        right.vlines(rows["budget_tokens"], rows["low"], rows["high"], color=colour, linewidth=0.9)
    for row in summary[summary["policy"] == "full"].head(1).itertuples():
        left.axhline(row.perplexity, color=INK, linewidth=0.9, linestyle=":", label="full cache")
    right.axhline(0, color=INK, linewidth=0.9, linestyle=":")
    left.set_yscale("log")
    log_numbers(left.yaxis, left.get_ylim()[1] / left.get_ylim()[0])
    left.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    # Good policies differ by hundredths and bad ones by whole nats; some lose nothing at all.
    right.set_yscale("symlog", linthresh=0.05, linscale=0.7)
    right.yaxis.set_major_locator(FixedLocator([0, 0.05, 0.1, 0.3, 1, 3]))
    right.yaxis.set_minor_locator(NullLocator())
    right.set_ylim(bottom=min(-0.02, 1.2 * float(table["loss_increase"].min())))
    right.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    left.set_ylabel("perplexity  (log, lower is better)")
    right.set_ylabel("loss increase  (nats per token,\nlog above 0.05, lower is better)")
    budgets = table.groupby("budget_tokens")["budget"].first()
    for axes in (left, right):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(list(budgets.index)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(
            FuncFormatter(lambda k, _: f"{k:.0f}\n{100 * k / setting.tokens:.3g} %")
        )
        axes.set_xlabel(plain("budget k  (tokens; % of T)"))
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center")
    return figure


def label_live(summary):
    """Copy of a summary with ``series`` and ``variant`` as :func:`label_series` gives them; budgets
    by kv_head are variants by their rule: "h2o, pyramid"."""
    out = summary.reset_index(drop=True).assign(series="", variant=0)
    same = out["budget"].str.fullmatch(r"[\d.]+ *%?")
    rules, variants = out["budget"].str.partition("(")[0].where(~same, ""), {}
    for (rule, policy), rows in out.groupby([rules, out["policy"]]):
        named = label_series(rows)
        series = named["series"] + (f", {rule}" if rule else "")
        out.loc[rows.index, "series"] = series.to_numpy()
        out.loc[rows.index, "variant"] = named["variant"].to_numpy() + variants.get(policy, 0)
        variants[policy] = out.loc[rows.index, "variant"].max() + 1
    return out


def ladder_figure(result):
    """:func:`loss_figure` of the experiment ``ladder``.

    Parameters
    ----------
    result : ExperimentResult
        Of :func:`h2o_theory.experiments.budgets.budget_ladder`.
    """
    setting = result.setting
    tokens = setting["tokens"]
    asked = [parse_budget(budget).resolve(tokens) for budget in result.table["budget"]]
    return loss_figure(
        result.table.assign(budget_tokens=asked, parameters=""),
        LiveSetting(
            model=setting["id"],
            text=setting["text"],
            tokens=tokens,
            windows=setting["windows"],
            scored=int(result.table["n"].max()),
        ),
    )
