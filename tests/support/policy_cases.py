"""Every compiled policy beside its plain reference, and the instances they are compared on."""

import numpy as np
import reference

from h2o_theory.policies import Context, make_policy
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
    "lru:access=relative,threshold=0.2": (reference.Lru, {"access": ("relative", 0.2)}),
    "lru:access=top_m,threshold=3": (reference.Lru, {"access": ("top_m", 3)}),
    "lfu:access=absolute,threshold=0.1": (reference.Lfu, {"access": ("absolute", 0.1)}),
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


def evict(policy, rows, budget, prefill=0, block_rows=None):
    """The compiled schedule, fed in blocks of ``block_rows``."""
    options = {"prefill": prefill, "block_rows": block_rows, "tensors": tensors_for(rows)}
    return schedule_of(policy, rows, budget, **options)


def expected(text, rows, budget, prefill, tensors=None):
    rule, parameters = CASES[text]
    if issubclass(rule, reference.Random | reference.Keyformer):
        stream = make_policy(text).settings(Context(budget, rows.shape[1])).stream
        parameters = parameters | {"stream": int(stream)}
    rule = rule(budget, rows, tensors=tensors or tensors_for(rows), **parameters)
    return reference.simulate(rows, rule, budget, prefill)


def tensors_for(rows):
    """Random queries, keys and values, the same for the same shape of rows."""
    return random_tensors(np.random.default_rng(2), *rows.shape[:2])


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
