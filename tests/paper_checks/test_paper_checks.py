"""The register of verdicts: complete, well-formed, and what its checks observe."""

import ast
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from h2o_theory.attention import attention_rows
from h2o_theory.cli import main
from h2o_theory.errors import BadArgument, MissingDependency
from h2o_theory.policies import Tensors, make_policy
from h2o_theory.testing import schedule_of
from paper_checks import load_register, run_check, select
from paper_checks import register as register_module
from paper_checks.algorithms import algorithm_1, algorithm_2, intended
from paper_checks.finding import (
    ASSUMING,
    FAILS,
    HOLDS,
    NOT_REPRODUCED,
    OUT_OF_REACH,
    REPRODUCED,
    VERDICTS,
    CheckFinding,
    judge,
    plain,
)
from paper_checks.outcome import Outcome, summary

PAPER = (
    # A. Setting
    ("def-2.1", "def-D.12"),
    ("def-2.2",),
    ("alg-1",),
    ("alg-2",),
    ("remark-D.14",),
    ("def-4.3", "remark-4.2"),
    # B. Submodularity
    ("def-D.1",),
    ("def-D.2",),
    ("def-D.3", "def-D.4"),
    ("lemma-3.1",),
    ("thm-D.17",),
    ("cor-D.18",),
    ("lemma-D.19",),
    ("def-D.20", "def-D.22"),
    ("remark-D.21",),
    # C. The guarantee
    ("def-D.23", "def-D.24"),
    ("def-D.25", "def-D.26"),
    ("def-D.27",),
    ("def-D.28",),
    ("lemma-D.29",),
    ("lemma-D.30",),
    ("lemma-D.31",),
    ("thm-4.4", "thm-D.32"),
    # D. Sparsity-preserving regression
    ("def-D.33", "claim-D.34"),
    (*(f"def-D.{number}" for number in (35, 36, 37, 38, 39, 40, 41, 43)), "claim-D.42"),
    tuple(f"lemma-D.44.{part}" for part in range(1, 6)),
    ("lemma-D.45",),
    ("lemma-D.46",),
    ("lemma-D.47.1", "lemma-D.47.2"),
    ("lemma-D.48", "lemma-D.48.u"),
    ("alg-4",),
    ("thm-D.49",),
    # E. Empirical claims
    ("obs-sparsity",),
    ("obs-20x",),
    ("obs-power-law",),
    ("obs-cooccurrence",),
    ("obs-removal",),
    ("obs-local-global",),
    ("obs-h2o-20",),
    ("obs-ablation",),
    ("obs-shots",),
    ("obs-streaming",),
    ("obs-quant",),
    ("obs-sparse-transformer",),
    ("obs-topk",),
    ("obs-spatten",),
    ("obs-average",),
    ("obs-early-bias",),
    ("obs-belady",),
    ("obs-memory",),
    ("obs-mlp",),
    ("obs-diversity",),
    ("obs-throughput",),
)
"""The paper's numbering: statements that are stated together, in its order."""

REGISTER = load_register()
FAST = [row for row in REGISTER if not row.slow]


def test_every_statement_of_the_paper_has_a_row_and_every_row_a_statement():
    listed = [name for names in PAPER for name in names]
    rows = [name for row in REGISTER for name in (row.id, *row.also)]
    assert sorted(rows) == sorted(listed)
    assert len(set(rows)) == len(rows)


def test_every_row_names_a_check_and_every_check_has_a_row():
    named = {row.check for row in REGISTER}
    assert len(named) == len(REGISTER)
    for check in named:
        module, _, name = check.partition(":")
        function = getattr(importlib.import_module(f"paper_checks.{module}"), name)
        assert function.__doc__, check
    folder = Path(register_module.__file__).parent
    prefixes = ("def_", "alg_", "remark_", "thm_", "cor_", "lemma_", "claim_", "obs_")
    found = {
        f"{path.stem}:{node.name}"
        for path in folder.glob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith(prefixes)
    }
    assert found == named


@pytest.mark.parametrize("row", REGISTER, ids=lambda row: row.id)
def test_a_row_says_what_its_verdict_needs(row):
    assert row.verdict in VERDICTS
    assert row.statement and row.place and row.kind and row.method
    assert bool(row.assumption) == (row.verdict == ASSUMING)
    assert bool(row.repaired) == (row.verdict == FAILS)
    if row.verdict == OUT_OF_REACH:
        assert row.command


@pytest.mark.parametrize("row", FAST, ids=lambda row: row.id)
def test_the_register_is_what_the_check_observes(row):
    if row.check.startswith("d_"):
        pytest.importorskip("torch", reason="the derivatives are checked with PyTorch")
    finding = run_check(row)
    assert row.agrees(finding), finding
    assert finding.summary and finding.effort
    assert json.dumps(plain(finding.numbers))
    if row.verdict in (FAILS, ASSUMING):
        assert finding.counterexample, "a failure is shown by an instance"
        assert finding.remedy_holds is True
    if row.verdict in (REPRODUCED, NOT_REPRODUCED):
        assert "T = " in finding.effort and "[" in finding.summary, "model, text and an interval"


def test_the_checks_are_found_in_a_checkout_that_is_not_installed():
    """A top-level package: no install hook (``-S``), only the dependencies on the path."""
    root = Path(register_module.__file__).parents[1]
    dependencies = [place for place in sys.path if "site-packages" in place]
    code = (
        f"import sys; sys.path += {dependencies!r}\n"
        "import paper_checks, h2o_theory\n"
        "row, = paper_checks.select(paper_checks.load_register(), ['def-D.1'])\n"
        "print(paper_checks.__file__, h2o_theory.__file__, paper_checks.run_check(row).verdict)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(str(root)) == 2 and done.stdout.endswith("holds\n")


def test_a_drifted_verdict_is_seen():
    row = REGISTER[0]
    other = CheckFinding(HOLDS, "", "")
    assert not row.agrees(other) and Outcome(row, other).drifted
    unrepaired = CheckFinding(row.verdict, "", "", remedy_holds=False)
    assert not row.agrees(unrepaired) and "same test" in Outcome(row, unrepaired).difference
    assert judge(None, None) == (HOLDS, None)
    assert judge({"x": 1}, None) == (FAILS, True)
    assert judge({"x": 1}, {"y": 2}, remedied=ASSUMING) == (ASSUMING, False)


def test_ids_select_and_unknown_ones_are_named():
    assert [row.id for row in select(REGISTER, ["thm-D.32", "alg-1"])] == ["thm-4.4", "alg-1"]
    assert select(REGISTER, []) == REGISTER
    with pytest.raises(BadArgument, match="alg-9"):
        select(REGISTER, ["alg-9"])


def test_summary_counts_and_names_what_differs():
    row = next(row for row in REGISTER if row.verdict == FAILS)
    good = Outcome(row, CheckFinding(FAILS, "s", "e", {}, {"n": 1}, True))
    bad = Outcome(row, CheckFinding(HOLDS, "s", "e"))
    both = summary([good, good])
    assert "fails as stated: 2" in both and "For 2 of the 2 that fail" in both
    assert "Different from the register: 1" in summary([good, bad])
    assert "not run: 1" in summary([Outcome(row, None, "no torch")])


def test_command_line_prints_the_table(capsys):
    assert main(["check", "def-D.1", "lemma-D.30"]) == 0
    out = capsys.readouterr().out
    assert "fails as stated" in out and "as recorded" in out and "Of 2 statements" in out
    assert main(["check", "lemma-D.30", "--long"]) == 0
    out = capsys.readouterr().out
    assert "counterexample" in out and "eps0" in out and "passes with" in out
    assert main(["check", "lemma-D.30", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["observed"] == FAILS and row["agrees"] and row["finding"]["counterexample"]


def test_command_line_refuses_an_unknown_id(capsys):
    assert main(["check", "lemma-Z"]) == 2
    assert "lemma-Z" in capsys.readouterr().err


def test_slow_checks_are_left_out_on_request(monkeypatch, capsys):
    monkeypatch.setattr("h2o_theory.cli.check.run_check", lambda row: CheckFinding(HOLDS, "", ""))
    assert main(["check", "--fast", "def-D.1", "obs-topk"]) == 0
    out = capsys.readouterr().out
    assert "def-D.1" in out and "obs-topk" not in out
    assert main(["check", "--fast", "obs-topk"]) == 2
    assert "slow" in capsys.readouterr().err


def test_a_missing_package_is_a_row_and_not_a_drift(monkeypatch, capsys):
    def missing(row):
        raise MissingDependency("a check needs a package", where=row.id, got="torch")

    monkeypatch.setattr("h2o_theory.cli.check.run_check", missing)
    assert main(["check", "lemma-D.45"]) == 1
    out = capsys.readouterr().out
    assert "not run" in out and "torch" in out


def test_command_line_exits_with_3_on_drift(monkeypatch, capsys):
    monkeypatch.setattr(
        "h2o_theory.cli.check.run_check", lambda row: CheckFinding(HOLDS, "changed", "made up")
    )
    assert main(["check", "alg-1"]) == 3
    assert "recorded: fails as stated" in capsys.readouterr().out


def test_the_page_holds_every_row_and_is_not_overwritten(tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["check", "def-D.1", "lemma-D.30", "--html", str(page)]) == 0
    text = page.read_text()
    assert 'id="def-D.1"' in text and 'id="lemma-D.30"' in text and "http" not in text
    assert main(["check", "def-D.1", "--html", str(page)]) == 2
    assert main(["check", "def-D.1", "--html", str(page), "--overwrite"]) == 0
    assert 'id="lemma-D.30"' not in page.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize(
    "policy, reading",
    [
        ("algorithm1:reading=literal", algorithm_1),
        ("algorithm1:reading=intent", intended),
        ("algorithm2:reading=literal", algorithm_2),
        ("algorithm2:reading=intent", lambda q, keys, k: intended(q, keys, k, rows="late")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_readings_of_the_algorithms_agree_with_the_shipped_policies(policy, reading):
    rng = np.random.default_rng(0)
    for n, d, k in ((9, 1, 1), (24, 3, 5), (40, 6, 11)):
        queries, keys = rng.normal(size=(2, n, d))
        rows = attention_rows(queries[None], keys, np.zeros(n, int), np.arange(1, n + 1), 1.0)
        tensors = Tensors(queries[None], queries[None], keys, keys, 1.0, None)
        schedule = schedule_of(make_policy(policy), rows, k + 1, tensors=tensors)
        kept = [tuple(j for j in range(t + 1) if schedule[j] > t) for t in range(n)]
        assert kept == reading(queries, keys, k)
