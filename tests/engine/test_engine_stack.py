"""The one-pass replay of all budgets equals direct simulation at each of them."""

import numpy as np
import pytest
import reference
from policy_cases import INSTANCES, evict

from h2o_theory.engine.stack import StackRun
from h2o_theory.policies import Context, Tensors, make_policy
from h2o_theory.testing.instances import schedule_of, schedules_of

NESTED = [
    "h2o:rows=raw,recent=0",
    "heavy:rows=raw",
    "heavy:rows=raw,group=max",
    "random",
    "random:form=fresh,n_sink=2",
    "belady",
    "belady_mass",
]


def one_pass(policy, rows, budgets, prefill, block_rows):
    tokens = rows.shape[1]
    run = StackRun(policy, [Context(k, tokens, prefill) for k in budgets], rows.mean(axis=0))
    for start in range(0, tokens, block_rows):
        run.advance(np.ascontiguousarray(rows[:, start : start + block_rows]), start)
    return run.schedules


@pytest.mark.parametrize("instance", INSTANCES)
@pytest.mark.parametrize("text", NESTED)
def test_one_pass_equals_direct_simulation(text, instance):
    rows, policy = INSTANCES[instance], make_policy(text)
    tokens = rows.shape[1]
    least = 3 if "n_sink" in text else 1
    budgets = [k for k in (5, 2, tokens, 1, 9, 3, tokens - 1) if least <= k <= tokens]
    for prefill in {0, 1, tokens // 2, tokens - 1}:
        schedules = one_pass(policy, rows, budgets, prefill, block_rows=7) if budgets else []
        for budget, schedule in zip(budgets, schedules, strict=True):
            assert (schedule == evict(policy, rows, budget, prefill)).all(), (budget, prefill)


def test_one_pass_with_a_recent_window():
    """Budgets that share a window of 5 entries and 2 sinks differ in their heavy part only."""
    rows = reference.softmax_rows(np.random.default_rng(3), 2, 50)
    policy = make_policy("h2o:rows=raw")
    budgets = [9, 10]  # both resolve to a recent window of 5 entries
    assert {policy.parts(k).n_recent for k in budgets} == {5}
    for prefill in (0, 20):
        schedules = one_pass(policy, rows, budgets, prefill, block_rows=50)
        for budget, schedule in zip(budgets, schedules, strict=True):
            assert (schedule == evict(policy, rows, budget, prefill)).all()


@pytest.mark.parametrize("values", [(0, 1, 2), (np.inf, -np.inf, 0), (np.nan, np.inf, 0, 1)])
def test_scores_that_are_tied_infinite_or_no_number(values):
    rng, policy = np.random.default_rng(5), make_policy("key_norm")
    for tokens in (3, 20, 90):
        rows = reference.softmax_rows(rng, 1, tokens)
        keys = np.zeros((tokens, 1))
        keys[:, 0] = rng.choice(values, size=tokens)
        tensors, budgets = Tensors(keys=keys), range(1, tokens + 1)
        for prefill in (0, tokens // 2):
            options = {"prefill": prefill, "tensors": tensors}
            together = schedules_of(policy, rows, budgets, **options)
            for budget, schedule in zip(budgets, together, strict=True):
                assert (schedule == schedule_of(policy, rows, budget, **options)).all()


def test_all_budgets_are_nested():
    rows = reference.softmax_rows(np.random.default_rng(4), 1, 40)
    schedules = one_pass(make_policy("heavy:rows=raw"), rows, range(1, 41), 0, block_rows=40)
    assert (np.diff(np.stack(schedules), axis=0) >= 0).all()
