"""Every compiled policy evicts exactly what its plain reference evicts."""

import numpy as np
import pytest
import reference

from h2o_theory.engine.run import make_run
from h2o_theory.policies import Context, available, make_policy

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
    "heavy": (reference.Heavy, {}),
    "heavy:rows=raw": (reference.Heavy, {"kind": "raw"}),
    "tova:shared=kv_head": (reference.Tova, {}),
    "lru": (reference.Lru, {}),
    "lfu": (reference.Lfu, {}),
    "greedy": (reference.Greedy, {}),
    "greedy:h=log": (reference.Greedy, {"h": "log"}),
    "greedy:h=cap,rows=renormalised": (reference.Greedy, {"h": "cap", "kind": "renormalised"}),
    "belady": (reference.Belady, {}),
    "belady_mass": (reference.BeladyMass, {}),
}


def evict(policy, rows, budget, prefill=0, block_rows=None, head=(0, 0), seed=0):
    """The compiled schedule, fed in blocks of ``block_rows``."""
    tokens = rows.shape[1]
    context = Context(budget, tokens, prefill, *head, seed)
    run = make_run(policy, context, rows.mean(axis=0))
    for start in range(0, tokens, block_rows or tokens):
        run.advance(np.ascontiguousarray(rows[:, start : start + (block_rows or tokens)]), start)
    return run.evicted_at


def expected(text, rows, budget, prefill):
    rule, parameters = CASES[text]
    if rule is reference.Random:
        stream = make_policy(text).settings(Context(budget, rows.shape[1]))[0]
        parameters = parameters | {"stream": int(stream)}
    return reference.simulate(rows, rule(budget, rows, **parameters), budget, prefill)


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
    least = 2 if "n_sink=1" in text else 1
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
