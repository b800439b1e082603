"""Results files, the summary, the figures' data and the page."""

import re

import numpy as np
import pandas as pd
import pytest
import reference

import h2o_theory as ht
from h2o_theory import figures
from h2o_theory.errors import BadArgument, CannotWrite, OutputExists
from h2o_theory.report import load_results, save_results, summary_table, write_report
from h2o_theory.report import page as page_module
from h2o_theory.trace import Trace

POLICIES = "full,recent,sink,random,h2o,heavy,tova,lru,lfu,greedy,belady,belady_mass,optimum"


@pytest.fixture(scope="module")
def trace():
    rng = np.random.default_rng(0)
    rows = np.stack([reference.softmax_rows(rng, 4, 60) for _ in range(3)])
    values = rng.normal(size=(3, 2, 60, 4))
    return Trace.from_attention(rows, kv_heads=2, values=values, model={"id": "made-up model"})


@pytest.fixture(scope="module")
def results(trace):
    table = ht.replay(trace, POLICIES, "5%,10%,20%")
    table.attrs["provenance"] = {"command": "h2o-theory replay", "versions": {"numpy": "9.9"}}
    return table


def test_summary_is_the_mean_over_heads(results):
    summary = summary_table(results).set_index(["policy", "budget"])
    h2o = results[(results.policy == "h2o") & (results.budget == "10%")]
    line = summary.loc[("h2o", "10%")]
    assert line.heads == 6 == len(h2o)
    assert line.mean_ratio == pytest.approx(h2o.approximation_ratio.mean())
    assert line.worst_ratio == pytest.approx(h2o.approximation_ratio.min())
    lost = (1 - h2o.retained_mass).sum() / (1 - h2o.optimum_mass).sum()
    assert line.lost_mass_ratio == pytest.approx(lost)
    assert summary.loc[("optimum", "20%")].mean_ratio == 1
    assert np.isnan(summary.loc[("full", "100%")].mean_ratio)
    assert len(summary) == 12 * 3 + 1


def test_variants_of_a_policy_stay_apart(trace):
    table = ht.replay(trace, "h2o,h2o:rows=raw,h2o:recent=0.25", "20%,40%")
    names = summary_table(table).policy.unique()
    assert len(names) == 3 and all(name.startswith("h2o (") for name in names)
    assert any("rows=raw" in name for name in names)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_results_round_trip(results, tmp_path, ending):
    path = save_results(results, tmp_path / f"r.{ending}")
    loaded = load_results(path)
    pd.testing.assert_frame_equal(loaded, results, check_dtype=False)
    if ending == "parquet":
        assert loaded.attrs["provenance"] == results.attrs["provenance"]
    with pytest.raises(OutputExists):
        save_results(results, path)
    save_results(results.head(3), path, overwrite=True)
    assert len(load_results(path)) == 3
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_bad_results_files(tmp_path, results):
    for path, words in (
        (tmp_path / "none.parquet", "no such"),
        (tmp_path / "r.xlsx", "unknown kind"),
    ):
        with pytest.raises(BadArgument, match=words):
            load_results(path)
    (tmp_path / "broken.parquet").write_bytes(b"not parquet")
    with pytest.raises(BadArgument, match="cannot be read"):
        load_results(tmp_path / "broken.parquet")
    with pytest.raises(CannotWrite, match="cannot write"):
        save_results(results, tmp_path / "broken.parquet" / "inside.csv")


def test_page_is_complete_and_self_contained(results, tmp_path):
    page = write_report(results, tmp_path / "report")
    text = page.read_text()
    for word in (*POLICIES.split(","), "made-up model", "numpy 9.9", "open-loop", "60 tokens"):
        assert word in text
    assert not re.findall(r"""(?:src|href)=["'](?!data:)""", text) and "@import" not in text
    assert text.count("<img") == 5
    names = {"approximation_ratio", "lost_mass_ratio", "ratio_by_head", "retained_mass", "sparsity"}
    for kind in ("png", "svg"):
        assert {file.stem for file in (page.parent / "figures").glob(f"*.{kind}")} == names
    assert len(load_results(page.parent / "results.parquet")) == len(results)
    assert len(load_results(page.parent / "results.csv")) == len(results)
    summary = pd.read_csv(page.parent / "summary.csv")
    ratio = summary[(summary.policy == "h2o") & (summary.budget == "10%")].mean_ratio.item()
    assert f"{ratio:.4f}" in text


def test_existing_report_is_kept_unless_allowed(results, tmp_path):
    page = write_report(results, tmp_path / "report")
    with pytest.raises(OutputExists):
        write_report(results, tmp_path / "report")
    small = results[results.policy.isin(["h2o", "lru"])]
    write_report(small, tmp_path / "report", overwrite=True)
    assert "belady_mass" not in page.read_text()
    (tmp_path / "notes").mkdir()
    with pytest.raises(OutputExists, match="not a report"):
        write_report(results, tmp_path / "notes", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes", "report"]


def test_an_interrupted_report_leaves_nothing(results, tmp_path, monkeypatch):
    def interrupt(results):
        raise KeyboardInterrupt

    monkeypatch.setattr(page_module, "summary_table", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_report(results, tmp_path / "report")
    assert list(tmp_path.iterdir()) == []


def without_values(trace):
    rows = np.stack([trace.rows(layer, 0) for layer in trace.layers])
    return Trace.from_attention(rows, kv_heads=1)


ODD = {
    "one budget": lambda trace: ht.replay(trace, POLICIES, "10%"),
    "one head": lambda trace: ht.replay(trace, POLICIES, "10%,20%", layers=[1], kv_heads=[0]),
    "no optimum": lambda trace: ht.replay(trace, "h2o,lru", "10%,20%"),
    "no h2o": lambda trace: ht.replay(trace, "lru,optimum", "10%,20%"),
    "only full": lambda trace: ht.replay(trace, "full", "10%"),
    "only optimum": lambda trace: ht.replay(trace, "optimum", "10%"),
    "no values": lambda trace: ht.replay(without_values(trace), "h2o,optimum", "10%,20%"),
    "whole budget": lambda trace: ht.replay(trace, "h2o,optimum", "100%"),
    "many budgets": lambda trace: ht.replay(trace, "h2o,lru", list(range(1, 61, 3))),
    "prefill": lambda trace: ht.replay(trace, POLICIES, "10%", prefill=30),
}


@pytest.mark.parametrize("kind", ODD)
def test_report_of_an_odd_table(kind, trace, tmp_path):
    table = ODD[kind](trace)
    text = write_report(table, tmp_path / "r").read_text()
    assert not re.search(r"\bnan\b", re.sub(r'src="[^"]*"', "", text).lower())
    for policy in table.policy.unique():
        assert policy in text
    if kind == "only full":
        assert "No figure of approximation ratio" in text


def test_infinite_divergence_is_printed_as_such(tmp_path):
    rows = np.zeros((8, 8))
    rows[:, 0] = 1
    table = ht.replay(Trace.from_attention(rows[None, None]), "recent,optimum", 2)
    assert ">inf<" in write_report(table, tmp_path / "r").read_text()


def test_unfit_tables_are_refused(results, tmp_path):
    with pytest.raises(BadArgument, match="kl, sparsity_causal"):
        write_report(results.drop(columns=["kl", "sparsity_causal"]), tmp_path / "r")
    with pytest.raises(BadArgument, match="no row"):
        write_report(results.head(0), tmp_path / "r")
    mixed = pd.concat([results, results.assign(tokens=61)])
    with pytest.raises(BadArgument, match="several values of tokens"):
        summary_table(mixed)
    assert list(tmp_path.iterdir()) == []


def test_mass_figure_draws_the_means(results):
    figure = figures.mass_figure(results)
    left = figure.axes[0]
    lines = [line.get_ydata() for line in left.get_lines()]
    for policy in ("h2o", "recent", "optimum"):
        rows = results[results.policy == policy]
        means = rows.groupby("budget_tokens").retained_mass.mean().to_numpy()
        assert any(len(line) == 3 and np.allclose(line, means) for line in lines), policy
    assert "higher is better" in left.get_ylabel()


def test_ratio_figure_draws_every_head(results):
    figure = figures.ratio_figure(results)
    drawn = np.concatenate(
        [
            c.get_offsets()[:, 0]
            for axes in figure.axes
            for c in axes.collections
            if len(c.get_offsets())
        ]
    )
    for value in results[results.policy == "h2o"].approximation_ratio:
        assert np.isclose(drawn, value).any()


def test_head_figure_maps_layers_and_heads(results):
    figure = figures.head_figure(results)
    meshes = [c for axes in figure.axes for c in axes.collections if c.get_array() is not None]
    values = np.sort(np.concatenate([np.ravel(m.get_array()) for m in meshes[:3]]))
    expected = np.sort(results[results.policy == "h2o"].approximation_ratio)
    assert np.allclose(values, expected)


def test_sparsity_figure_shows_both_countings(results):
    axes = figures.sparsity_figure(results).axes[0]
    lines = [line.get_ydata() for line in axes.get_lines()]
    heads = results.drop_duplicates(["layer", "kv_head"])
    for column in ("sparsity_causal", "sparsity_square"):
        means = 100 * heads.groupby("layer")[column].mean().to_numpy()
        assert any(len(line) == 3 and np.allclose(line, means) for line in lines)


def test_policies_look_different_and_always_the_same():
    names = POLICIES.split(",")
    looks = [figures.policy_look(name) for name in names]
    assert len({(look.colour, look.marker, str(look.dash)) for look in looks}) == len(names)
    assert figures.policy_look("mine") == figures.policy_look("mine")


def test_a_table_of_the_optimum_alone_draws_its_curve(trace):
    figure = figures.mass_figure(ht.replay(trace, "optimum", "10%,20%"))
    assert any(len(line.get_ydata()) == 2 for line in figure.axes[0].get_lines())
