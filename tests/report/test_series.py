"""Settings of one policy, mask or transform are lines of their own in every table and figure."""

import numpy as np
import pandas as pd
import pytest
import reference
from small_traces import trace_with_keys

import h2o_theory as ht
from h2o_theory import figures
from h2o_theory.errors import BadArgument
from h2o_theory.figures.live import LiveSetting, loss_figure
from h2o_theory.figures.series import label_series
from h2o_theory.masks import replay_masks
from h2o_theory.report import load_results, save_results, summary_table, write_report
from h2o_theory.trace import Trace
from h2o_theory.transforms import replay_transforms

pytestmark = pytest.mark.usefixtures("coarse_figures")

MINE = """
from h2o_theory.policies import PlainPolicy


class Mix(PlainPolicy):
    name = "mix"

    def __init__(self, alpha=0.1):
        self.alpha = alpha

    def rate(self, t, positions):
        return [self.alpha * j + (1 - self.alpha) * (j % 3) for j in positions]
"""
LABELS = ("h2o", "h2o:decay=0.9", "mix:alpha=0.5", "mix:alpha=0.99")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    path = tmp_path_factory.mktemp("mine") / "mine.py"
    path.write_text(MINE)
    rows = np.stack([reference.softmax_rows(np.random.default_rng(0), 4, 40)])
    trace = Trace.from_attention(rows, kv_heads=2)
    policies = f"h2o,h2o:decay=0.9,{path}:Mix:alpha=0.5,{path}:Mix:alpha=0.99,optimum"
    with pytest.raises(BadArgument, match="mix:alpha=0.5 at 20%"):
        ht.replay(trace, [f"{path}:Mix:alpha=0.5"] * 2, "20%")
    return ht.replay(trace, policies, "20%,40%")


def test_the_columns_say_what_was_asked_and_what_ran(results, tmp_path):
    line = results[(results.policy == "h2o:decay=0.9") & (results.budget == "40%")].iloc[0]
    assert (line.policy_name, line.n_sink, line.n_heavy, line.n_recent) == ("h2o", 0, 8, 8)
    assert line.parameters == "score=sum,decay=0.9,rows=renormalised,group=mean"
    assert results.groupby(["policy_name", "parameters"]).policy.nunique().eq(1).all()
    for ending in ("csv", "parquet"):
        loaded = load_results(save_results(results, tmp_path / f"r.{ending}"))
        pd.testing.assert_frame_equal(loaded, results)


def test_two_settings_are_two_series_of_one_colour(results):
    table = label_series(results)
    assert dict(zip(table.series, table.variant, strict=True)) == {
        "h2o": 0, "h2o:decay=0.9": 1, "mix:alpha=0.5": 0, "mix:alpha=0.99": 1, "optimum": 0,
    }  # fmt: skip
    for name in ("h2o", "mix"):
        first, second = figures.policy_look(name), figures.policy_look(name, 1)
        assert first.colour == second.colour and first != second


@pytest.mark.parametrize("budgets", [1, 2])
def test_two_settings_are_two_lines_of_every_figure_and_table(results, budgets, tmp_path):
    results = results[results.budget.isin(["20%", "40%"][:budgets])]
    assert set(LABELS) < set(summary_table(results).policy)
    for draw in (figures.mass_figure, figures.ratio_figure, figures.lost_mass_figure):
        figure = draw(results)
        shown = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
        shown += [label.get_text() for axes in figure.axes for label in axes.get_yticklabels()]
        assert set(LABELS) <= set(shown), draw.__name__
    for label in LABELS:
        assert label in figures.head_figure(results, label).get_suptitle()
    page = write_report(results, tmp_path / "report").read_text()
    assert all(page.count(f">{label}<") >= 3 for label in LABELS)


def test_two_settings_are_two_lines_of_the_loss_figure():
    lines = [
        {"policy": label, "policy_name": label.partition(":")[0], "budget": budget,
         "budget_tokens": k, "perplexity": 9.0 + k, "loss_increase": 0.1, "low": 0.0, "high": 0.2}
        for budget, k in (("20%", 8), ("40%", 16), ("pyramid(20%)", 8)) for label in LABELS
    ]  # fmt: skip
    figure = loss_figure(pd.DataFrame(lines), LiveSetting("tiny", "noise", 40, 1, 39))
    shown = {text.get_text() for text in figure.legends[0].get_texts()}
    assert shown == {*LABELS, *(f"{label}, pyramid" for label in LABELS)}


def test_two_settings_of_a_mask_or_a_transform_are_two_lines():
    trace = trace_with_keys(layers=1)
    table = replay_masks(trace, "topk:heavy=0.25,topk:heavy=0.5,topk", "30%")
    assert table["mask"].unique().tolist() == ["topk:heavy=0.25", "topk:heavy=0.5", "topk"]
    assert set(table.mask_name) == {"topk"} and table.parameters.nunique() == 3
    table = replay_transforms(trace, "h2o,h2o:decay=0.9", "kivi:bits=2,kivi:bits=4,exact", "50%")
    lines = table.groupby(["policy", "transform"]).ngroups
    assert lines == 6 and set(table.transform_name) == {"kivi", "exact"}
    assert table.transform_parameters.nunique() == 3 and set(table.policy_name) == {"h2o"}
