"""Every row of the logs and every cell: fitted on some, tested on the others."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from h2o_theory.costs.claims import CLAIMS, above_the_roofline, decompositions, ratios
from h2o_theory.costs.document import published_document
from h2o_theory.costs.estimate import estimate
from h2o_theory.costs.fit import (
    a100_constants,
    best_design,
    constants_for,
    hold_out,
    least_squares,
    t4_constants,
)
from h2o_theory.costs.memory import peak_memory
from h2o_theory.costs.published import A100_LOGS, CELLS, T4_LOGS
from h2o_theory.costs.units import GIB

ROOT = Path(__file__).parents[2]


def test_the_rows_are_those_of_the_logs():
    printed = [17.953, 20.3045, 93.368, 128.666, 494.103, 918.893, 1160.902]
    assert [row.tokens_per_second for row in A100_LOGS] == pytest.approx(printed, rel=1e-3)
    printed = [12.655, 18.825, 13.849, 14.338, 18.181, 14.797]
    assert [row.tokens_per_second for row in T4_LOGS] == pytest.approx(printed, rel=1e-3)
    assert all(row.projected for row in T4_LOGS)
    assert not any(row.projected for row in A100_LOGS)


def test_weights_and_cache_are_those_of_the_logs():
    gib = {"opt-30b": (55.803, 10.285), "opt-13b": (23.921, 30.518), "opt-6.7b": (12.386, 48.0)}
    for row in A100_LOGS[::2][:3]:
        weights, cache = gib[row.model]
        case = row.case
        assert case.model.weight_bytes / GIB == pytest.approx(weights, rel=2e-3)
        size = case.model.token_bytes * case.workload.tokens * case.workload.sequences / GIB
        assert size == pytest.approx(cache, rel=1e-3)


def test_h2o_holds_twice_the_ratio_of_the_prompt():
    held = [row.case.policy.budget for row in (*A100_LOGS, *T4_LOGS) if row.ratio]
    assert held == [(1540,), (2000,), (818,), (818,), *[(102,), (204,), (306,)] * 2]


@pytest.mark.parametrize("row", [*A100_LOGS, *T4_LOGS], ids=lambda row: row.name)
def test_every_row_within_its_target(row):
    target = 0.10 if row.hardware == "a100-80gb" else 0.25
    found = estimate(row.case, constants_for(row.case.hardware.name))
    assert found.tokens_per_second == pytest.approx(row.tokens_per_second, rel=target)
    assert found.prefill.seconds == pytest.approx(row.seconds[0], rel=target)
    assert found.decode.seconds == pytest.approx(row.seconds[1], rel=target)
    assert peak_memory(row.case).device / GIB == pytest.approx(row.peak, rel=0.03)


@pytest.mark.parametrize("cell", [c for c in CELLS if c.case], ids=lambda cell: cell.name)
def test_every_cell_that_says_its_lengths_within_a_quarter(cell):
    found = estimate(cell.case, constants_for(cell.case.hardware.name))
    low, high = cell.value - cell.rounding, cell.value + cell.rounding
    assert 0.75 * low < found.tokens_per_second < 1.25 * high


def test_rows_left_out_of_the_chosen_four():
    (found,) = (one for one in hold_out() if one.fitted == best_design())
    assert len(found.tested) == 3
    for what in ("prefill", "decode", "throughput"):
        assert found.worst(what) <= 0.10


def test_every_choice_of_rows_is_tried_and_most_keep_the_target():
    found = hold_out()
    assert len(found) == 35 and len({one.fitted for one in found}) == 35
    assert sum(one.worst("throughput") <= 0.10 for one in found) == 25
    # With fewer than two full runs, reading the cache can hardly be told from the bookkeeping.
    worst = max(found, key=lambda one: one.worst("throughput"))
    assert sum(A100_LOGS[i].ratio == 0 for i in worst.fitted) < 2
    t4 = hold_out(T4_LOGS, 3)
    assert len(t4) == 20 and max(one.worst("throughput") for one in t4) <= 0.25


def test_the_design_does_not_look_at_times():
    other = [replace(row, decode=(1.0,), prefill=(9.0,)) for row in A100_LOGS]
    assert best_design(other) == best_design()


def test_no_constant_beats_a_peak():
    for constants in (a100_constants(), t4_constants()):
        assert min(constants.weights, constants.cache, constants.flops, constants.store) >= 1
        assert constants.bookkeeping > 0 and constants.scores > 0
    for one in hold_out():
        assert one.constants.weights >= 1 and one.constants.bookkeeping >= 0


@pytest.mark.parametrize("seed", range(30))
def test_least_squares_against_scipy(seed):
    optimize = pytest.importorskip("scipy.optimize")
    rng = np.random.default_rng(seed)
    parts, truth = rng.random((6, 3)) + 0.1, rng.random(3) * 3
    measured = parts @ truth * rng.uniform(0.7, 1.3, 6)
    least = [1.0, 0.5, 0.0]
    ours = least_squares(parts, measured, least)
    theirs = optimize.lsq_linear(parts / measured[:, None], np.ones(6), (least, np.inf), tol=1e-14)
    assert (ours >= least).all()
    assert ours == pytest.approx(theirs.x, abs=1e-5)


def test_factors_multiply_to_what_was_measured():
    found = decompositions()
    assert len(found) == 22
    for one in found:
        product = np.prod([factor for _, factor in one.all_factors])
        assert product == pytest.approx(one.measured)
        assert 0.75 < one.rest < 1.25
        if one.name.startswith("flexgen"):
            assert one.budget_share == pytest.approx(1)


def test_what_the_29x_is_made_of():
    found = {one.name: one for one in decompositions()}["deepspeed opt-30b 512+512"]
    assert found.measured == pytest.approx(31.38, abs=0.01)
    assert found.by_budget == pytest.approx(2.69, abs=0.05)
    assert 0.25 < found.budget_share < 0.33


def test_every_stated_factor_has_a_cell():
    found = {
        claim.name: [r.name for r in ratios(claim.over) if claim.agrees(r)] for claim in CLAIMS
    }
    assert all(found.values())
    assert "6.70 / 0.23, accelerate opt-30b XSUM" in found["29x over Accelerate"]
    assert found["29x over DeepSpeed"] == ["18.83 / 0.6, deepspeed opt-30b 512+512"]
    assert max(r.value for r in ratios("flexgen")) == pytest.approx(52.1 / 16.9)


def test_a_cell_above_the_roofline_is_named():
    ((cell, bound),) = above_the_roofline()
    assert cell.printed == "30.40" and cell.table == 4 and 23 < bound < 25


def test_the_committed_document_is_what_the_command_writes():
    committed = json.loads((ROOT / "docs" / "results" / "costs.json").read_text())
    now = json.loads(json.dumps(published_document()))
    assert committed["hold_out"]["A100"]["rows"] == now["hold_out"]["A100"]["rows"]
    assert committed == now
