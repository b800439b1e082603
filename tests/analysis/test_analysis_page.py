"""The whole analysis: findings, tables without gaps, the page, and what is refused."""

import re
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from analysis_traces import made_up_trace, zipf_text
from commands import refused

import h2o_theory as ht
from h2o_theory import figures
from h2o_theory.analysis import Analysis, analyze
from h2o_theory.analysis.association import association, label_control, word_table
from h2o_theory.analysis.findings import VERDICTS
from h2o_theory.analysis.graph import centralities, cooccurrence_graph
from h2o_theory.analysis.measurements import Measurements
from h2o_theory.analysis.pieces import token_bytes
from h2o_theory.analysis.survey import survey_rows
from h2o_theory.analysis.words import words_of
from h2o_theory.cli import main
from h2o_theory.errors import BadArgument, MissingDependency, NotEnoughData, OutputExists
from h2o_theory.report import analysis as page_module
from h2o_theory.report import write_analysis
from h2o_theory.statistics import gini, top_share

QUICK = {"replicates": 50, "workers": 1}


@pytest.fixture(scope="module")
def real(committed_trace):
    return analyze(ht.open_trace(committed_trace), **QUICK)


def no_gaps(analysis):
    """No table holds NaN, NA or None, and every number of the measurements lies in its interval."""
    for name, table in analysis.tables.items():
        assert not table.isna().any().any(), name
    measures = analysis.tables["measures"]
    assert ((measures.low <= measures.value) & (measures.value <= measures.high)).all()
    assert np.isfinite(measures[["value", "low", "high"]].to_numpy(dtype=float)).all()
    return True


def test_the_committed_trace(real):
    assert isinstance(real, Analysis) and no_gaps(real)
    found = {finding.id: finding for finding in real.findings}
    assert all(finding.verdict in VERDICTS for finding in real.findings)
    assert found["texts"].verdict == "not enough data" and "--compare" in found["texts"].sentence
    for finding in real.findings:
        if finding.verdict != "not enough data":
            assert re.search(r"\[-?[\d.]+, -?[\d.]+\]", finding.sentence), finding.id
    # The plain correlation is strong, and gone once frequency and position are held fixed.
    assert found["co-occurrence"].verdict == "supported"
    assert found["frequency"].verdict == "not supported"


def test_tables_are_what_they_say(real, committed_trace):
    trace, tables = ht.open_trace(committed_trace), real.tables
    rows = trace.rows(15, 1)
    received = rows.sum(axis=1)
    line = tables["concentration"].query(
        "layer == 15 and q_head == 4 and scope == 'positions without sinks'"
    )
    assert line.Gini.item() == pytest.approx(gini(received[1, 4:]))
    assert line["top 10% share"].item() == pytest.approx(top_share(received[1, 4:], 0.1))
    causal = np.tril(np.ones((512, 512), dtype=bool))
    small = (rows < 0.01 * rows.max(axis=-1, keepdims=True)) & causal
    heads = tables["sparsity_by_head"].query("layer == 15 and kv_head == 1")
    assert heads.causal.to_numpy() == pytest.approx(small.sum(axis=(1, 2)) / causal.sum())
    assert tables["sparsity_by_distance"].groupby("layer").mass.sum().to_numpy() == pytest.approx(1)
    matrix = tables["overlap_layers"].pivot(index="layer_a", columns="layer_b", values="overlap")
    assert np.allclose(matrix, matrix.T) and ((matrix >= 0) & (matrix <= 1)).all().all()
    assert (tables["survival"].lasting.diff().dropna() <= 1e-12).all()


def test_figures_draw_the_tables(real):
    figure = figures.rank_mass_figure(real)
    drawn = figure.axes[0].get_lines()[0].get_ydata()
    assert drawn == pytest.approx(np.sort(real.survey.received()[4:])[::-1])
    layers = figures.layer_sparsity_figure(real).axes[0].get_lines()
    expected = 100 * real.tables["sparsity_by_layer"].causal
    assert layers[0].get_ydata() == pytest.approx(expected)
    mesh = figures.overlap_figure(real).axes[0].collections[0].get_array()
    assert np.asarray(mesh).ravel() == pytest.approx(real.tables["overlap_layers"].overlap)
    words = {text.get_text() for text in figures.network_figure(real).axes[0].texts}
    assert words == set(real.tables["words"].nlargest(60, "cooccurrences").word)
    support = figures.support_figure(real).axes[0].get_lines()[0].get_ydata()
    expected = real.tables["support"].query("mass == 0.9").row_share
    assert support == pytest.approx(expected)
    lines = figures.evolution_figure(real).axes[0].get_lines()
    assert any(
        np.array_equal(line.get_ydata(), real.tables["evolution"].local_future) for line in lines
    )
    for draw in (figures.association_figure, figures.heavy_hitter_map_figure):
        caption = draw(real).get_supxlabel()
        for word in ("smollm2-135m", "demo_text.txt", "T = 512"):
            assert word in caption


def test_the_page_is_complete_and_self_contained(real, tmp_path, monkeypatch):
    page = write_analysis(real, tmp_path / "out", provenance={"command": "h2o-theory analyze"})
    text = page.read_text()
    assert text.count("<img") == 8 and "No figure" not in text
    assert not re.findall(r"""(?:src|href)=["'](?!data:)""", text) and "@import" not in text
    for finding in real.findings:
        assert finding.claim in text and finding.verdict in text
    for name, table in real.tables.items():
        again = pd.read_csv(page.parent / "tables" / f"{name}.csv", keep_default_na=False)
        assert len(again) == len(table) == len(
            pd.read_parquet(page.parent / "tables" / f"{name}.parquet")
        )  # fmt: skip
    monkeypatch.setattr(page_module, "_FIGURES", {})
    with pytest.raises(OutputExists):
        write_analysis(real, tmp_path / "out")
    write_analysis(real, tmp_path / "out", overwrite=True)
    (tmp_path / "mine").mkdir()
    with pytest.raises(OutputExists, match="not a report"):
        write_analysis(real, tmp_path / "mine", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "out"]


SHORT = {
    "one token": (1, [" word"]),
    "two tokens": (2, [" one", " word"]),
    "five tokens, all sinks but one": (5, [" a", " b", " c", " d", " e"]),
    "one repeated word": (150, [" word"] * 150),
    "two words": (150, [" one", " two"] * 75),
    "no words": (100, [" ,", " ."] * 50),
    "short": (40, zipf_text(40)),
    "no sinks beyond": (3, [" x", " y", " z"]),
}


@pytest.mark.parametrize("case", SHORT)
def test_too_little_text_is_said_plainly(case, tmp_path):
    tokens, strings = SHORT[case]
    analysis = analyze(made_up_trace(tokens, strings), **QUICK)
    assert no_gaps(analysis)
    missing = analysis.tables["not_enough_data"]
    assert len(missing) and missing.reason.str.len().min() > 5
    verdicts = {finding.id: finding.verdict for finding in analysis.findings}
    assert "not enough data" in verdicts.values()
    assert case == "short" or verdicts["co-occurrence"] == "not enough data"
    for finding in analysis.findings:
        if finding.verdict == "not enough data":
            assert finding.sentence.startswith("Not enough data: ")
            assert "nothing to measure" not in finding.sentence, finding.id
    if case in ("one token", "one repeated word"):
        page = write_analysis(analysis, tmp_path / "out").read_text()
        assert "Not enough data" in page
        assert not re.search(r"\bnan\b", re.sub(r"data:[^\"]+", "", page).lower())


@pytest.mark.parametrize("tokens", [80, 100, 140, 200])
@pytest.mark.parametrize("start", [0, 100, 200, 300])
def test_words_of_a_short_text_are_measured_or_said_to_be_too_few(tokens, start, committed_trace):
    strings = ht.open_trace(committed_trace).spec.token_strings[start : start + tokens]
    trace = made_up_trace(tokens, strings, layers=1, seed=start)
    survey, words, found = survey_rows(trace), words_of(token_bytes(trace)), Measurements()
    received = survey.received()
    try:
        assert len(label_control(words, received, survey.n_sink, 5, times=20)) == 20
    except NotEnoughData as error:
        assert "not enough data" in str(error)
    ranks = centralities(cooccurrence_graph(words, 5))
    words = word_table(words, received, survey.n_sink, ranks)
    assert len(association(words, found, "text", replicates=50)) or len(found.missing())


def test_a_short_text_is_analysed(committed_trace):
    strings = ht.open_trace(committed_trace).spec.token_strings[:80]
    analysis = analyze(made_up_trace(80, strings, layers=1), **QUICK)
    assert no_gaps(analysis) and len(analysis.tables["not_enough_data"])


def test_uniform_attention_is_no_concentration():
    import reference

    rows = np.stack([reference.uniform_rows(2, 300)])
    trace = ht.Trace.from_attention(rows, kv_heads=1)
    analysis = analyze(trace, words=False, **QUICK)
    assert no_gaps(analysis)
    verdicts = {finding.id: finding.verdict for finding in analysis.findings}
    assert verdicts["concentration"] == "not supported"
    assert verdicts["sparsity"] == "not supported"


@pytest.mark.parametrize("kind", ["all on the first token", "each on itself"])
def test_degenerate_attention_is_analysed(kind):
    rows = np.eye(150) if kind == "each on itself" else np.eye(1, 150) + np.zeros((150, 1))
    trace = ht.Trace.from_attention(rows[None, None])
    trace.spec = replace(trace.spec, token_strings=tuple(zipf_text(150)))
    analysis = analyze(trace, **QUICK)
    assert no_gaps(analysis)
    verdicts = {finding.id: finding.verdict for finding in analysis.findings}
    assert verdicts["power-law"] == "not enough data"


def test_a_trace_without_words_is_refused_or_done_without(tmp_path, capsys):
    trace = str(made_up_trace(100).save(tmp_path / "plain.trace"))
    out = str(tmp_path / "out")
    line = ["analyze", trace, "--out", out, "--replicates", "50", "--workers", "1"]
    refused(capsys, line, "BadArgument", "--tokenizer", "--token-strings", "--no-words")
    assert main([*line, "--no-words"]) == 0
    printed = capsys.readouterr()
    assert "not enough data" in printed.out and "page:" in printed.err


def test_the_verb_refuses_by_name(tmp_path, capsys, committed_trace):
    trace = str(committed_trace)
    line = ["analyze", trace, "--out", str(tmp_path / "out")]
    refused(capsys, [*line, "--share", "0"], "BadArgument", "share")
    refused(capsys, [*line, "--threshold", "2"], "BadArgument", "threshold")
    refused(capsys, [*line, "--window", "0"], "BadArgument", "window")
    refused(capsys, [*line, "--replicates", "3"], "BadArgument", "replicates", "50")
    refused(capsys, [*line, "--layers", "1"], "OutOfRange", "layer 1")
    refused(capsys, [*line, "--compare", str(tmp_path / "no")], "TraceNotFound", "no")
    refused(capsys, [*line, "--tokenizer", str(tmp_path)], "ModelNotFound", "tokenizer")
    assert list(tmp_path.iterdir()) == []
    refused(capsys, ["analyze", trace, "--out", str(tmp_path)], "OutputExists")


@pytest.mark.parametrize("module", ["networkx", "scipy.stats"])
def test_a_missing_library_is_named_before_any_row_is_read(monkeypatch, committed_trace, module):
    monkeypatch.setitem(sys.modules, module, None)
    trace, seen = ht.open_trace(committed_trace), []
    with pytest.raises(MissingDependency, match=r"h2o-theory\[analysis\]"):
        analyze(trace, layers=[0], progress=lambda *stage: seen.append(stage), **QUICK)
    assert seen == []


def test_words_need_strings_of_every_text(committed_trace):
    trace = made_up_trace(50, zipf_text(50))
    with pytest.raises(BadArgument, match="no token strings"):
        analyze(trace, compare=[made_up_trace(50)], **QUICK)
    with pytest.raises(BadArgument, match="different models"):
        analyze(trace, compare=[ht.open_trace(committed_trace)], **QUICK)
