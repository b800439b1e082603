"""What the command line says of input that cannot be used, before any work is done."""

import numpy as np
import pytest
from commands import refused

from h2o_theory.budgets import parse_budget, read_budget_matrix
from h2o_theory.cli import main
from h2o_theory.errors import BadBudget, UnknownName
from h2o_theory.policies import make_policy
from h2o_theory.sweep import read_spec

RECORD = ["record", "no-such-model", "--text", "no-such-text"]
EXPERIMENT = ["experiment", "ladder", "--out", "x"]


@pytest.mark.parametrize("written, meant", [("0.2", "20%"), (".05", "5%"), ("0.125", "12.5%")])
def test_a_share_as_a_number_is_understood(written, meant):
    with pytest.raises(BadBudget, match=f"Did you mean {meant}"):
        parse_budget(written)


@pytest.mark.parametrize("written", ["1e9", "1/2", "1o", "12 tokens", "2.5", "-3", "1_000"])
def test_no_other_number_is_guessed(written):
    with pytest.raises(BadBudget) as caught:
        parse_budget(written)
    assert "Did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([*RECORD, "--out", ""], "--out must name a file or folder"),
        (["replay", "no-such-trace", "--out", ""], "--out must name a file or folder"),
        (["sweep", "no-such-spec", "--out", ""], "--out must name a file or folder"),
        ([*RECORD, "--out", "x", "--tokens", "0"], "--tokens must be at least 1, got 0"),
        ([*RECORD, "--out", "x", "--piece", "-1"], "--piece must be at least 1, got -1"),
        ([*EXPERIMENT, "--windows", "0"], "--windows must be at least 1, got 0"),
        ([*RECORD, "--out", "x", "--resume", "--overwrite"], "exclude each other"),
    ],
)
def test_what_no_verb_can_use_is_refused_first(capsys, arguments, words):
    refused(capsys, arguments, "BadArgument", words)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    for encoding in ("utf-8", "utf-8-sig"):
        matrix, spec = tmp_path / f"{encoding}.csv", tmp_path / f"{encoding}.toml"
        matrix.write_text("layer,kv_head,budget\n0,,4\n", encoding=encoding)
        assert read_budget_matrix(matrix)
        text = 'traces = ["a"]\npolicies = ["h2o"]\nbudgets = ["5%"]\n'
        spec.write_text(text, encoding=encoding)
        assert read_spec(spec).policies


@pytest.mark.parametrize(
    "name, ours",
    [("StreamingLLM", "sink"), ("streaming_llm", "sink"), ("pyramidkv", "pyramid:10%")],
)
def test_names_of_other_software_are_known(name, ours):
    with pytest.raises(UnknownName, match=f"Did you mean [^?]*{ours}"):
        make_policy(name)


def test_an_ending_may_be_in_capitals(tmp_path, capsys):
    with open(tmp_path / "ROWS.NPY", "wb") as file:
        np.save(file, np.eye(4)[None, None])
    command = ["import", str(tmp_path / "ROWS.NPY"), "--out", str(tmp_path / "t.trace")]
    assert main(command) == 0, capsys.readouterr().err
