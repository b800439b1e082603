"""Layers with attention sinks: a cache that dropped keys still holds the sink's logit."""

import numpy as np
import pytest

import h2o_theory as ht
from h2o_theory.sweep import estimate_sweep
from h2o_theory.trace import Trace
from h2o_theory.trace.spec import LayerSpec, TraceSpec
from h2o_theory.trace.store import MemoryStore

TOKENS, BUDGET, GROUP, SCALING = 33, 7, 2, 0.4
SINKS = (1.5, -0.5, 2.5, 0.0)


@pytest.fixture(scope="module")
def trace():
    rng, hi = np.random.default_rng(2), np.arange(1, TOKENS + 1)
    tensors = {
        "0.q": 2 * rng.normal(size=(4, TOKENS, 6)),
        "0.k": rng.normal(size=(2, TOKENS, 6)),
        "0.v": rng.normal(size=(2, TOKENS, 5)),
        "0.lo": 0 * hi,
        "0.hi": hi,
    }
    layer = LayerSpec(0, 4, 2, 6, 5, SCALING, sinks=SINKS)
    return Trace(TraceSpec(TOKENS, (layer,)), MemoryStore(tensors, (0,), TOKENS), "sinks")


def softmax(trace, kv_head, t, visible):
    """Weights of row t over ``visible`` keys, and of the sink, per query head: [G, n + 1]."""
    queries = trace.queries(0, kv_head)[:, t]
    logits = SCALING * queries @ trace.keys(0, kv_head)[visible].T
    sinks = np.array(SINKS[kv_head * GROUP : (kv_head + 1) * GROUP])[:, None]
    weights = np.exp(np.concatenate([logits, sinks], axis=1))
    return weights / weights.sum(axis=1, keepdims=True)


def heavy(trace, kv_head):
    """The schedule of accumulated attention, with the softmax a real cache would compute."""
    visible, score, evicted_at = [], np.zeros(TOKENS), np.full(TOKENS, TOKENS)
    for t in range(TOKENS):
        visible.append(t)
        score[visible] += softmax(trace, kv_head, t, visible)[:, :-1].mean(axis=0)
        if len(visible) == BUDGET:
            victim = min(visible, key=lambda j: (score[j], j))
            evicted_at[victim] = t
            visible.remove(victim)
    return evicted_at


class PlainHeavy(ht.PlainPolicy):
    name = "plain_heavy"

    def start(self, context):
        self.score = np.zeros(context.tokens)

    def observe(self, t, positions, row):
        self.score[positions] += row

    def rate(self, t, positions):
        return self.score[positions]


@pytest.mark.parametrize("policy", ["heavy", PlainHeavy()])
def test_renormalised_rows_keep_the_sink(trace, policy):
    found = ht.schedules(trace, policy, BUDGET)
    for kv_head in range(2):
        assert found[0, kv_head].tolist() == heavy(trace, kv_head).tolist()


def test_output_error_and_divergence_are_those_of_masked_softmax(trace):
    table = ht.replay(trace, "heavy", BUDGET)
    for kv_head in range(2):
        evicted_at, values = heavy(trace, kv_head), trace.values(0, kv_head)
        errors, divergences, masses = [], [], []
        for t in range(TOKENS):
            seen = np.arange(t + 1)
            visible = seen[evicted_at[: t + 1] >= t]
            full = softmax(trace, kv_head, t, seen)
            kept = softmax(trace, kv_head, t, visible)
            same = np.concatenate([full[:, visible], full[:, -1:]], axis=1)
            divergences += (kept * np.log(kept / same)).sum(axis=1).tolist()
            masses.append(full[:, visible].sum(axis=1).mean())
            for g in range(GROUP):
                output = full[g, :-1] @ values[seen]
                distance = kept[g, :-1] @ values[visible] - output
                errors.append(np.linalg.norm(distance) / np.linalg.norm(output))
        row = table[table.kv_head == kv_head].iloc[0]
        assert row.output_error == pytest.approx(np.mean(errors), abs=1e-12)
        assert row.kl == pytest.approx(np.mean(divergences), abs=1e-12)
        assert row.retained_mass == pytest.approx(np.mean(masses), abs=1e-12)
    assert (table.retained_mass < 1).all() and (table.approximation_ratio < 1).all()
    full = ht.replay(trace, "full", BUDGET)
    assert (full.retained_mass < 0.99).all() and np.allclose(full.output_error, 0)
    assert np.allclose(full.kl, 0)


def test_what_a_sink_takes_is_nobodys_loss(trace):
    """Losses are counted from what the whole rows hold, in every measure that divides them."""
    policies, whole = ["heavy", "recent", "optimum"], np.zeros(2)
    for kv_head in range(2):
        rows = [softmax(trace, kv_head, t, np.arange(t + 1))[:, :-1] for t in range(TOKENS)]
        whole[kv_head] = np.mean([row.sum(axis=1).mean() for row in rows])
    assert (whole < 0.95).all()
    table = ht.replay(trace, policies, BUDGET)
    assert table.full_mass.to_numpy() == pytest.approx(whole[table.kv_head], abs=1e-9)
    lost = whole[table.kv_head] - table.retained_mass
    least = whole[table.kv_head] - table.optimum_mass
    assert table.lost_mass_ratio.to_numpy() == pytest.approx((lost / least).to_numpy(), rel=1e-6)
    assert ht.replay(trace, "full", BUDGET).full_mass.to_numpy() == pytest.approx(whole, abs=1e-9)
    pooled = ht.summary_table(table).set_index("policy").lost_mass_ratio
    for policy in ("heavy", "recent"):
        rows = table.policy == policy
        assert pooled[policy] == pytest.approx(lost[rows].sum() / least[rows].sum(), rel=1e-6)
    bounds = ht.ratio_intervals(table, ht.certified_interval(trace, str(BUDGET)))
    exact = table.set_index(["kv_head", "policy"]).lost_mass_ratio
    for row in bounds.itertuples():
        value = exact[row.kv_head, row.policy]
        assert row.lost_ratio_least - 1e-6 <= value <= row.lost_ratio_most * (1 + 1e-6)
        assert np.isfinite(row.lost_ratio_most)


def test_sets_shared_by_a_layer_keep_the_sinks_too(trace):
    """TOVA over the layer: the mean of the rows that caches with sinks compute."""
    evicted_at, visible = np.full(TOKENS, TOKENS), []
    for t in range(TOKENS):
        visible.append(t)
        rows = np.concatenate([softmax(trace, head, t, visible)[:, :-1] for head in range(2)])
        if len(visible) == BUDGET:
            victim = visible[int(rows.mean(axis=0).argmin())]
            evicted_at[victim] = t
            visible.remove(victim)
    found = ht.schedules(trace, "tova", BUDGET)
    assert found[0, 0].tolist() == found[0, 1].tolist() == evicted_at.tolist()


def test_the_time_of_a_sweep_is_estimated(trace, tmp_path):
    spec = {"traces": [trace], "policies": ["h2o", "lru"], "budgets": [5]}
    found = estimate_sweep(spec, tmp_path / "none")
    assert found.cells == 4 and found.cpu_seconds >= 0
    assert not (tmp_path / "none").exists()
