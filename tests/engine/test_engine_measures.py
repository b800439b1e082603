"""Each measure, recomputed the long way from rows, values and the schedule."""

import math

import numpy as np
import pytest
import reference

import h2o_theory as ht
from h2o_theory.engine.run import make_run
from h2o_theory.policies import Context, make_policy
from h2o_theory.trace import Trace

TOKENS, BUDGET = 31, 7


@pytest.fixture(scope="module")
def trace():
    rng = np.random.default_rng(11)
    attention = reference.softmax_rows(rng, 4, TOKENS)[None]
    return Trace.from_attention(
        attention, kv_heads=2, values=rng.normal(size=(1, 2, TOKENS, 5)), name="made", layers=[3]
    )


def schedule(trace, name, kv_head, prefill):
    rows = trace.rows(3, kv_head)
    run = make_run(make_policy(name), Context(BUDGET, TOKENS, prefill, 3, kv_head), rows.mean(0))
    run.advance(rows, 0)
    return rows, reference.visible_sets(run.evicted_at), run.evicted_at


@pytest.mark.parametrize("prefill", [0, 1, 12])
@pytest.mark.parametrize("name", ["recent", "h2o", "belady_mass"])
def test_measures(trace, name, prefill):
    table = ht.replay(trace, name, BUDGET, prefill=prefill)
    for kv_head in range(2):
        got = table[table.kv_head == kv_head].iloc[0]
        rows, sets, evicted_at = schedule(trace, name, kv_head, prefill)
        values = trace.values(3, kv_head)
        masses, errors, divergences, hits, accesses, sizes = [], [], [], 0, 0, []
        for t in range(prefill, TOKENS):
            visible = sets[t]
            sizes.append(len(visible))
            masses.append(np.mean([rows[g, t, visible].sum() for g in range(2)]))
            for g in range(2):
                mass = rows[g, t, visible].sum()
                full = rows[g, t] @ values
                kept = rows[g, t, visible] @ values[visible] / mass
                errors.append(np.linalg.norm(kept - full) / np.linalg.norm(full))
                divergences.append(-math.log(mass))
            mean = rows[:, t].mean(axis=0)
            for j in range(t + 1):
                if j == t or mean[j] >= 1 / (t + 1):
                    accesses += 1
                    hits += j in visible
        masses, sizes = np.array(masses), np.array(sizes)
        assert got.n_rows == TOKENS - prefill
        assert got.retained_mass == pytest.approx(masses.mean(), abs=1e-12)
        assert got.n_rows_full == (sizes == BUDGET).sum()
        assert got.retained_mass_full == pytest.approx(masses[sizes == BUDGET].mean(), abs=1e-12)
        assert got.output_error == pytest.approx(np.mean(errors), abs=1e-12)
        assert got.kl == pytest.approx(np.mean(divergences), abs=1e-12)
        assert got.hit_rate == pytest.approx(hits / accesses)
        assert got.realised_budget_max == sizes.max()
        assert got.realised_budget_mean == pytest.approx(sizes.mean())
        ages = [at - j for j, at in enumerate(evicted_at) if at < TOKENS]
        assert got.victim_age_mean == pytest.approx(np.mean(ages))
        topk = sum(np.sort(rows[:, t].mean(0))[-BUDGET:].sum() for t in range(prefill, TOKENS))
        assert got.topk_mass == pytest.approx(topk / got.n_rows, abs=1e-9)
        ratio = masses.sum() / (got.optimum_mass * got.n_rows)
        assert got.approximation_ratio == pytest.approx(ratio, abs=1e-9)
        lost = (got.n_rows - masses.sum()) / (got.n_rows * (1 - got.optimum_mass))
        assert got.lost_mass_ratio == pytest.approx(lost, rel=1e-6)


def test_divergence_is_the_kl_of_the_two_softmaxes(trace):
    rows, sets, _ = schedule(trace, "h2o", 0, 0)
    t = 20
    visible = np.isin(np.arange(TOKENS), sets[t])
    restricted = ht.attention.renormalise(rows[0, t], visible)
    # KL(restricted || full) is -log(mass); KL(full || restricted) would be infinite.
    kl = sum(p * math.log(p / q) for p, q in zip(restricted, rows[0, t], strict=True) if p > 0)
    assert kl == pytest.approx(-math.log(rows[0, t, visible].sum()))


def test_sparsity_in_both_countings(trace):
    table = ht.replay(trace, "full", 1)
    rows = trace.rows(3, 0)
    below = causal = 0
    for g in range(2):
        for t in range(TOKENS):
            for j in range(t + 1):
                causal += 1
                below += rows[g, t, j] < 0.01 * rows[g, t].max()
    square = 2 * TOKENS**2
    got = table[table.kv_head == 0].iloc[0]
    assert got.sparsity_causal == pytest.approx(below / causal)
    assert got.sparsity_square == pytest.approx((below + square - causal) / square)


def test_uniform_attention_is_not_sparse_but_half_of_the_square_is():
    trace = Trace.from_attention(reference.uniform_rows(1, 50)[None])
    table = ht.replay(trace, "full", 1)
    assert table.sparsity_causal.item() == 0
    assert table.sparsity_square.item() == pytest.approx(49 / 100)


def test_without_values_there_is_no_output_error():
    trace = Trace.from_attention(reference.uniform_rows(1, 9)[None])
    assert ht.replay(trace, "h2o", 3).output_error.isna().all()


def test_a_row_without_visible_mass_diverges_infinitely():
    rows = np.zeros((5, 5))
    rows[:, 0] = 1
    table = ht.replay(Trace.from_attention(rows[None, None]), "recent", 1)
    assert table.kl.item() == np.inf
    assert table.retained_mass.item() == pytest.approx(1 / 5)
    assert np.isfinite(table.hit_rate.item())


def test_there_is_no_ratio_where_the_optimum_retains_nothing():
    rows = np.zeros((6, 6))
    rows[:, 0] = 1
    table = ht.replay(Trace.from_attention(rows[None, None]), "recent,optimum", 1, prefill=1)
    assert (table.optimum_mass == 0).all() and (table.retained_mass == 0).all()
    assert table.approximation_ratio.isna().all() and (table.topk_bound_ratio == 0).all()


def test_optimum_of_the_remaining_mass_counterexample():
    """Evicting the least remaining mass loses to the optimum; budget 2 here is one kept entry."""
    rows = np.zeros((6, 6))
    for t, row in enumerate(
        ([1], [0.9, 0.1], [0, 0.5, 0.5], [0, 0, 0.05, 0.95], [0.5, 0, 0, 0.5], [0.5, 0, 0, 0.5])
    ):
        rows[t, : len(row)] = row
    table = ht.replay(Trace.from_attention(rows[None, None]), "belady_mass,optimum", 2)
    mass = table.set_index("policy").retained_mass * 6
    best = 0.0
    for choice in np.ndindex(*[2] * 6):  # keep the newcomer (1) or the held entry (0)
        held, total = None, 0.0
        for t in range(6):
            total += rows[t, t] + (rows[t, held] if held is not None else 0.0)
            held = t if choice[t] else held
        best = max(best, total)
    assert mass["optimum"] == pytest.approx(best)
    assert mass["belady_mass"] <= mass["optimum"]


def test_plain_policy_gives_the_same_results():
    class PlainHeavy(ht.PlainPolicy):
        name = "plain_heavy"

        def start(self, context):
            self.sums = np.zeros(context.tokens)

        def observe(self, t, positions, row):
            self.sums[positions] += row

        def rate(self, t, positions):
            return self.sums[positions]

    class PlainRecent(ht.PlainPolicy):
        name = "plain_recent"

        def parts(self, budget):
            return ht.policies.Parts(0, 0, budget)

        def rate(self, t, positions):
            return np.zeros(len(positions))

    class PlainFuture(ht.PlainPolicy):
        name, kind = "plain_future", "clairvoyant"

        def rate(self, t, positions):
            return self.future[t + 1 :, positions][::-1].cumsum(axis=0)[-1:].sum(axis=0)

    rng = np.random.default_rng(8)
    trace = Trace.from_attention(reference.softmax_rows(rng, 4, 30)[None], kv_heads=2)
    for plain, shipped in (
        (PlainHeavy(), "heavy"),
        (PlainRecent(), "recent"),
        (PlainFuture(), "belady_mass"),
    ):
        for prefill in (0, 9):
            table = ht.replay(trace, [plain, shipped], "3,20%", prefill=prefill)
            mine, theirs = (table[table.policy == name] for name in (plain.name, shipped))
            assert np.allclose(mine.retained_mass, theirs.retained_mass, atol=1e-12)
            assert mine.approximation_ratio.tolist() == theirs.approximation_ratio.tolist()


def test_plain_policy_can_share_a_set_over_a_layer():
    class SharedLast(ht.PlainPolicy):
        name, scope = "shared_last", "layer"

        def observe(self, t, positions, row):
            self.last = row

        def rate(self, t, positions):
            return self.last[: len(positions)]

    trace = Trace.from_attention(
        reference.softmax_rows(np.random.default_rng(9), 4, 30)[None], kv_heads=2
    )
    table = ht.replay(trace, [SharedLast(), "tova"], 8)
    pair = [
        table[table.policy == name].retained_mass.to_numpy() for name in ("shared_last", "tova")
    ]
    assert np.allclose(*pair, atol=1e-12)
