"""The recorded trace in traces/: real rows, real ratios, and the offline demo."""

import dataclasses

import numpy as np
import pytest
import reference
from policy_cases import CASES, expected

from h2o_theory.cli import main
from h2o_theory.engine.tensors import load_tensors
from h2o_theory.optimum import check_certificate, optimum_curve, to_fixed_point
from h2o_theory.policies import TENSORS, make_policy
from h2o_theory.report import load_results
from h2o_theory.testing import schedule_of
from h2o_theory.trace import open_trace, validate


@pytest.fixture(scope="module")
def trace(committed_trace):
    return open_trace(committed_trace)


def test_trace_is_valid_and_small(trace, committed_trace):
    assert validate(trace).kv_heads == 21
    assert trace.tokens == 512 and trace.layers == (0, 5, 10, 15, 20, 25, 29)
    assert sum(file.stat().st_size for file in committed_trace.iterdir()) < 8_000_000
    assert "".join(trace.spec.token_strings).startswith("The mill at Harrow Bend")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "out"
    assert main(["demo", "--offline", "--out", str(out)]) == 0
    return out


def test_offline_demo_writes_the_page(demo):
    page = (demo / "report" / "index.html").read_text()
    assert "smollm2-135m" in page and page.count("<img") == 5


def test_no_policy_beats_the_optimum_on_real_heads(demo):
    table = load_results(demo / "results.parquet")
    caches = table[table.policy != "full"]
    assert len(caches) == 21 * 12 * 3
    assert (caches.approximation_ratio <= 1).all() and (caches.topk_bound_ratio <= 1).all()
    assert (caches[caches.policy == "optimum"].approximation_ratio == 1).all()
    assert table[table.policy == "full"].approximation_ratio.isna().all()
    assert (caches.realised_budget_max == caches.budget_tokens).all()
    numbers = table.drop(columns="retained_mass_full").select_dtypes("number")
    allowed = {"approximation_ratio", "lost_mass_ratio", "topk_bound_ratio", "victim_age_mean"}
    assert set(numbers.columns[numbers.isna().any()]) <= allowed


def test_the_optimum_of_a_real_head_is_certified(trace):
    fixed = to_fixed_point(trace.rows(15, 1).mean(axis=0))
    curve = optimum_curve(fixed, 102, budgets=[25, 51, 102])
    for schedule in curve.schedules.values():
        assert check_certificate(fixed, schedule).optimal


@pytest.mark.parametrize("text", CASES)
def test_compiled_equals_reference_on_real_rows(trace, text):
    rows = np.ascontiguousarray(trace.rows(20, 2, 0, 72)[:, :, :72])
    assert np.allclose(rows.sum(axis=-1), 1)
    tensors = load_tensors(trace, 20, 2, TENSORS)
    first = {kind: getattr(tensors, kind)[..., :72, :] for kind in TENSORS}
    tensors = dataclasses.replace(tensors, **first)
    for budget, prefill in ((9, 0), (14, 30)):
        got = schedule_of(make_policy(text), rows, budget, prefill=prefill, tensors=tensors)
        assert got.tolist() == expected(text, rows, budget, prefill, tensors)
        sets = reference.visible_sets(got)
        assert max(len(visible) for visible in sets[prefill:]) == budget
