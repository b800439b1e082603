"""Every compiled policy evicts exactly what its plain reference evicts."""

import numpy as np
import pytest
import reference
from policy_cases import CASES, INSTANCES, evict, expected

from h2o_theory.policies import available, make_policy


@pytest.mark.parametrize("instance", INSTANCES)
@pytest.mark.parametrize("text", CASES)
def test_compiled_equals_reference(text, instance):
    rows = INSTANCES[instance]
    tokens = rows.shape[1]
    least = {"sink:n_sink=1": 2, "h2o:n_recent=3": 3}.get(text, 1)
    for budget in sorted({1, 2, 3, 5, tokens // 2, tokens - 1, tokens}):
        if not least <= budget <= tokens:
            continue
        for prefill in {0, 1, tokens // 3, tokens - 1}:
            got = evict(make_policy(text), rows, budget, prefill)
            want = expected(text, rows, budget, prefill)
            assert got.tolist() == want, (budget, prefill)


def test_every_policy_that_decides_has_a_reference():
    decided_elsewhere = {"full", "optimum", "schedule"}
    assert {text.partition(":")[0] for text in CASES} == set(available()) - decided_elsewhere


@pytest.mark.parametrize("text", CASES)
def test_blocks_do_not_matter(text):
    rows = INSTANCES["random group"]
    whole = evict(make_policy(text), rows, 7, prefill=5)
    for block_rows in (1, 5, 23):
        assert (evict(make_policy(text), rows, 7, 5, block_rows) == whole).all()


@pytest.mark.parametrize("text", ["h2o", "heavy", "greedy", "lru", "lfu", "tova:shared=kv_head"])
def test_agrees_with_reference_on_longer_random_rows(text):
    rows = reference.softmax_rows(np.random.default_rng(7), 2, 60, sharpness=1.0)
    for budget in (6, 13):
        assert evict(make_policy(text), rows, budget).tolist() == expected(text, rows, budget, 0)


def test_mean_score_is_the_mean_over_rows_seen():
    rng = np.random.default_rng(3)
    rule = reference.H2OMean(9, None)
    rows = [{j: rng.random() for j in range(t + 1)} for t in range(30)]
    for t, row in enumerate(rows):
        rule.see(t, row)
    for j in (0, 7, 29):
        seen = [row[j] for row in rows if j in row]
        assert rule.score(j, 29, None) == pytest.approx(sum(seen) / len(seen), rel=1e-12)


ENDS = [
    ("lrfu:lam=0,access=uniform", "lfu"),
    ("lrfu:lam=0", "heavy"),
    ("lrfu:lam=64", "tova:shared=kv_head"),
    ("lru_k:depth=1", "lru"),
    ("h2o:recent=0", "heavy"),
    ("h2o:recent=1", "recent"),
    ("first:recent=1", "recent"),
    ("h2o:decay=1", "h2o"),
    ("oracle_static:recent=1", "recent"),
    ("belady_mass:w=1000", "belady_mass"),
    ("fifo", "recent"),
    ("algorithm1:reading=intent", "heavy"),
    ("algorithm1", "first:recent=0"),
    ("algorithm1:reading=accumulated", "first:recent=0"),
    ("keyformer:form=code", "recent"),
    ("spatten", "heavy:group=sum"),
    ("vatp:recent=1,n_sink=0", "recent"),
    ("coverage:recent=1", "recent"),
    ("h2o_lm_eval_llama:recent=1", "recent"),
    ("scissorhands_code:n_recent=50", "recent"),
    ("lru:access=absolute,threshold=1e-12", "recent"),
]


@pytest.mark.parametrize(("special", "plain"), ENDS)
def test_families_meet_at_their_ends(special, plain):
    for seed in range(3):
        rows = reference.softmax_rows(np.random.default_rng(seed), 2, 50)
        for budget in (2, 7, 20):
            left = evict(make_policy(special), rows, budget)
            assert (left == evict(make_policy(plain), rows, budget)).all(), budget


def test_lrfu_at_one_evicts_a_least_recently_used_entry():
    rows = reference.softmax_rows(np.random.default_rng(0), 1, 40)
    schedule = evict(make_policy("lrfu:lam=1,access=uniform"), rows, 7)
    rule = reference.Lru(7, rows)
    for t, visible in enumerate(reference.visible_sets(schedule)):
        rule.see(t, reference.restrict(rows, t, visible, "renormalised", "mean"))
        last = {j: rule.score(j, t, visible) for j in visible}
        for victim in np.flatnonzero(schedule == t):
            assert last[victim] == min(last.values())
