"""Every compiled policy evicts exactly what its plain reference evicts."""

import numpy as np
import pytest
import reference

from h2o_theory.policies import Context, available, make_policy
from h2o_theory.testing import random_tensors, schedule_of

CASES = {
    "recent": (reference.Recent, {}),
    "sink": (reference.Sink, {}),
    "sink:n_sink=1": (reference.Sink, {"n_sink": 1}),
    "random": (reference.Random, {}),
    "random:form=fresh": (reference.Random, {"form": "fresh"}),
    "h2o": (reference.H2O, {}),
    "h2o:rows=raw": (reference.H2O, {"kind": "raw"}),
    "h2o:recent=0.3": (reference.H2O, {"recent": 0.3}),
    "h2o:recent=0": (reference.H2O, {"recent": 0.0}),
    "h2o:recent=1": (reference.H2O, {"recent": 1.0}),
    "h2o:group=sum": (reference.H2O, {"reduction": "sum"}),
    "h2o:group=max": (reference.H2O, {"reduction": "max"}),
    "h2o:group=first": (reference.H2O, {"reduction": "first"}),
    "h2o:score=mean": (reference.H2OMean, {}),
    "h2o:score=mean,rows=raw": (reference.H2OMean, {"kind": "raw"}),
    "h2o:decay=0.75": (reference.H2ODecayed, {}),
    "h2o:n_recent=3": (reference.H2OTokens, {}),
    "first": (reference.First, {}),
    "heavy": (reference.Heavy, {}),
    "heavy:rows=raw": (reference.Heavy, {"kind": "raw"}),
    "tova:shared=kv_head": (reference.Tova, {}),
    "lru": (reference.Lru, {}),
    "lfu": (reference.Lfu, {}),
    "lru:access=relative,level=0.2": (reference.Lru, {"access": ("relative", 0.2)}),
    "lru:access=top_m,level=3": (reference.Lru, {"access": ("top_m", 3)}),
    "lfu:access=absolute,level=0.1": (reference.Lfu, {"access": ("absolute", 0.1)}),
    "belady:access=relative": (reference.Belady, {"access": ("relative", 0.01)}),
    "belady:form=count,access=top_m": (reference.BeladyCount, {"access": ("top_m", 8)}),
    "lru_k": (reference.LruK, {}),
    "lru_k:depth=3,period=2": (reference.LruK, {"depth": 3, "period": 2}),
    "lrfu": (reference.Lrfu, {}),
    "lrfu:lam=0.5,access=uniform": (reference.Lrfu, {"lam": 0.5, "soft": False}),
    "scissorhands": (reference.Scissorhands, {}),
    "scissorhands:window=5,n_recent=2": (
        reference.Scissorhands,
        {"window": 5, "recent_tokens": 2},
    ),
    "keyformer": (reference.Keyformer, {}),
    "greedy": (reference.Greedy, {}),
    "greedy:h=log": (reference.Greedy, {"h": "log"}),
    "greedy:h=cap,rows=renormalised": (reference.Greedy, {"h": "cap", "kind": "renormalised"}),
    "belady": (reference.Belady, {}),
    "belady:form=count": (reference.BeladyCount, {}),
    "belady_mass": (reference.BeladyMass, {}),
    "belady_mass:w=3": (reference.BeladyAhead, {}),
    "belady_rate": (reference.BeladyRate, {}),
    "oracle_static": (reference.OracleStatic, {}),
    "lrfu:rows=raw": (reference.Lrfu, {"kind": "raw"}),
    "fifo": (reference.Fifo, {}),
    "h2o_real_drop": (reference.H2ORealDrop, {}),
    "h2o_flexgen": (reference.H2OFlexgen, {}),
    "h2o_lm_eval": (reference.H2OLmEval, {}),
    "h2o_lm_eval_llama": (reference.H2OLmEvalLlama, {}),
    "algorithm1": (reference.Algorithm1, {}),
    "algorithm1:reading=accumulated": (reference.Algorithm1, {"reading": "accumulated"}),
    "algorithm1:reading=intent": (reference.Algorithm1, {"reading": "intent"}),
    "algorithm2": (reference.Algorithm2, {}),
    "algorithm2:reading=intent": (reference.Algorithm2, {"reading": "intent"}),
    "scissorhands_code": (reference.ScissorhandsCode, {}),
    "keyformer:form=code": (reference.KeyformerCode, {}),
    "snapkv": (reference.SnapKV, {}),
    "snapkv:window=2,kernel=3,pool=max": (
        reference.SnapKV,
        {"window": 2, "kernel": 3, "pool": "max"},
    ),
    "buzz": (reference.Buzz, {}),
    "buzz:stride=2": (reference.Buzz, {"stride": 2}),
    "spatten": (reference.Heavy, {"reduction": "sum"}),
    "vatp": (reference.Vatp, {}),
    "vatp:rows=raw": (reference.Vatp, {"kind": "raw"}),
    "key_norm": (reference.KeyNorm, {}),
    "key_diff": (reference.KeyDiff, {}),
    "expected_attention": (reference.ExpectedAttention, {}),
    "coverage": (reference.Coverage, {}),
    "coverage:window=4,cap=0.5,rows=renormalised": (
        reference.Coverage,
        {"window": 4, "cap": 0.5, "kind": "renormalised"},
    ),
}


def tensors_for(rows):
    """Random queries, keys and values, the same for the same shape of rows."""
    return random_tensors(np.random.default_rng(2), *rows.shape[:2])


def evict(policy, rows, budget, prefill=0, block_rows=None):
    """The compiled schedule, fed in blocks of ``block_rows``."""
    options = {"prefill": prefill, "block_rows": block_rows, "tensors": tensors_for(rows)}
    return schedule_of(policy, rows, budget, **options)


def expected(text, rows, budget, prefill, tensors=None):
    rule, parameters = CASES[text]
    if issubclass(rule, reference.Random | reference.Keyformer):
        stream = make_policy(text).settings(Context(budget, rows.shape[1]))[0]
        parameters = parameters | {"stream": int(stream)}
    rule = rule(budget, rows, tensors=tensors or tensors_for(rows), **parameters)
    return reference.simulate(rows, rule, budget, prefill)


def instances():
    rng = np.random.default_rng(1)
    yield "random", reference.softmax_rows(rng, 1, 24)
    yield "random group", reference.softmax_rows(rng, 3, 24)
    yield "tied", reference.dyadic_rows(rng, 2, 16)
    yield "uniform", reference.uniform_rows(2, 16)
    yield "diagonal", np.eye(9)[None]
    yield "first token only", np.repeat(np.eye(9)[None, :1], 9, axis=1)
    yield "one token", np.ones((1, 1, 1))


INSTANCES = dict(instances())


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
    decided_elsewhere = {"full", "optimum"}
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
    ("lru:access=absolute,level=1e-12", "recent"),
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
