"""Made-up rows have the character they claim, and the traps catch the policies they name."""

import numpy as np
import pytest
from optimum_referees import brute_force

from h2o_theory.engine.run import make_run
from h2o_theory.errors import BadArgument, BadBudget
from h2o_theory.instances import (
    TRAPS,
    drifting_rows,
    heavy_hitter_rows,
    local_rows,
    lookalike_rows,
    needle_rows,
    online_limit,
    surprise_rows,
    tied_rows,
    trap_rows,
)
from h2o_theory.optimum import UNITS, optimum_at, to_fixed_point
from h2o_theory.policies import make_policy
from h2o_theory.policies.base import Context

FAMILIES = [drifting_rows, heavy_hitter_rows, local_rows, needle_rows, tied_rows]
ONLINE = ["h2o", "lru", "lfu", "recent", "sink", "tova", "heavy"]


def retained(rows, budget, policy):
    """Mass that a policy retains, summed over the rows."""
    run = make_run(make_policy(policy), Context(budget, len(rows)), rows)
    run.advance(rows[None], 0)
    position = np.arange(len(rows))
    seen = (position <= position[:, None]) & (position[:, None] <= run.evicted_at)
    return (rows * seen).sum()


def optimum(rows, budget):
    return optimum_at(to_fixed_point(rows), budget).value / UNITS


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tokens", [1, 2, 5, 100])
def test_rows_are_causal_and_sum_to_one(family, tokens):
    rows = family(tokens, np.random.default_rng(1))
    assert rows.shape == (tokens, tokens) and rows.dtype == np.float64
    assert (rows >= 0).all() and not np.triu(rows, 1).any()
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_generator_decides_the_rows(family):
    rows = family(30, np.random.default_rng(1))
    assert (rows == family(30, np.random.default_rng(1))).all()
    assert (rows != family(30, np.random.default_rng(2))).any()
    rng = np.random.default_rng(1)
    assert (family(30, rng) != family(30, rng)).any()


def test_families_have_their_character():
    rng = np.random.default_rng(4)
    tokens, budget = 300, 30
    rows = {family.__name__: family(tokens, rng) for family in FAMILIES}
    best = {name: optimum(each, budget) for name, each in rows.items()}
    ratio = {
        (name, policy): retained(rows[name], budget, policy) / best[name]
        for name in rows
        for policy in ("recent", "heavy")
    }
    assert ratio["local_rows", "recent"] > 0.9 > 0.6 > ratio["heavy_hitter_rows", "recent"]
    assert ratio["heavy_hitter_rows", "heavy"] > 0.8 > ratio["local_rows", "heavy"]
    # A handful of keys collects half of all mass where hitters are heavy, and nowhere else.
    share = {
        name: np.sort(each.sum(axis=0))[::-1][:15].sum() / tokens for name, each in rows.items()
    }
    assert (
        share["heavy_hitter_rows"]
        > 0.5
        > max(share["local_rows"], share["drifting_rows"], share["needle_rows"])
    )
    # Needles: single keys older than 20 rows take most of a row again and again.
    old = np.tril(rows["needle_rows"], -20).max(axis=1)
    assert (old > 0.5).sum() > 20 > (np.tril(rows["local_rows"], -20).max(axis=1) > 0.5).sum()
    # Ties: three values in all, and equal column sums.
    assert set(np.unique(rows["tied_rows"])) == {0.0, 0.25, 0.5, 1.0}


def test_drift_asks_for_a_topic_until_it_is_drawn_anew():
    rows = drifting_rows(256, np.random.default_rng(0), stay=64, match=8.0)
    steady, across = [], []
    for t in range(70, 255):
        same = np.minimum(rows[t, :60], rows[t + 1, :60]).sum()
        (across if (t + 1) % 64 == 0 else steady).append(same / rows[t, :60].sum())
    assert np.mean(steady) > 0.35 > np.mean(across)


@pytest.mark.parametrize("tokens, budget", [(400, 8), (400, 2), (400, 3), (1000, 50), (130, 20)])
@pytest.mark.parametrize("policy", TRAPS)
def test_each_trap_catches_its_policy_and_spares_another(policy, tokens, budget):
    rows = trap_rows(policy, tokens, budget)
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-12)
    assert not np.triu(rows, 1).any()
    best = optimum(rows, budget)
    assert best > tokens - 2 * budget - 2
    assert retained(rows, budget, policy) <= 5 * budget + 2
    spared = {"recent": "h2o", "lru": "lfu", "lfu": "tova", "h2o": "belady", "belady": "sink"}
    assert retained(rows, budget, spared[policy]) > 0.99 * best


@pytest.mark.parametrize("online", ["lru", "lfu", "tova", "heavy"])
def test_the_h2o_trap_spares_other_online_policies(online):
    rows = trap_rows("h2o", 400, 8)
    assert retained(rows, 8, "h2o") < 0.08 * optimum(rows, 8)
    assert retained(rows, 8, online) > 0.99 * optimum(rows, 8)


@pytest.mark.parametrize("tokens, budget", [(60, 3), (100, 5), (50, 1)])
@pytest.mark.parametrize("policy", ONLINE)
def test_no_online_policy_beats_the_limit_on_lookalikes(policy, tokens, budget):
    limit = online_limit(tokens, budget)
    rows = lookalike_rows(tokens, budget, np.random.default_rng(3))
    key = int(rows[-1].argmax())
    assert key < limit.rows and (rows[: limit.rows] == np.eye(tokens)[: limit.rows]).all()
    values = []
    for other in range(limit.rows):  # the draw, exhausted
        swapped = np.eye(tokens)
        swapped[limit.rows :] = 0.0
        swapped[limit.rows :, other] = 1.0
        values.append(retained(swapped, budget, policy))
        assert (swapped == rows).all() == (other == key)
    assert np.mean(values) / tokens <= limit.ratio + 1e-12
    if budget > 1:
        assert optimum(rows, budget) == pytest.approx(tokens)


def test_the_limit_shrinks_with_the_length():
    ratios = [online_limit(tokens, 10).ratio for tokens in (100, 1000, 10_000, 100_000)]
    assert ratios == sorted(ratios, reverse=True) and ratios[-1] < 0.021
    for tokens, ratio in zip((100, 1000, 10_000, 100_000), ratios, strict=True):
        assert ratio <= 2 * np.sqrt(10 / tokens) + 10 / tokens
    assert online_limit(50, 50).ratio == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("policy", ONLINE)
def test_no_online_policy_beats_the_limit_on_a_surprise(policy):
    tokens, budget = 12, 4
    rows = surprise_rows(tokens, np.random.default_rng(0))
    assert rows.sum() == rows[-1].sum() == 1.0 and rows[-1, -1] == 0.0
    values = []
    for key in range(tokens - 1):
        swapped = np.zeros((tokens, tokens))
        swapped[-1, key] = 1.0
        values.append(retained(swapped, budget, policy))
    assert np.mean(values) <= (budget - 1) / (tokens - 1) + 1e-12
    assert optimum(rows, 2) == pytest.approx(1.0)


def test_the_optimum_of_a_surprise_by_brute_force():
    fixed = to_fixed_point(surprise_rows(6, np.random.default_rng(2)))
    assert brute_force(fixed, 2, 0) == fixed.sum() and brute_force(fixed, 1, 0) == 0


def test_refuses_unusable_input():
    rng = np.random.default_rng(0)
    for family in FAMILIES:
        with pytest.raises(BadArgument, match="tokens"):
            family(0, rng)
        with pytest.raises(BadArgument, match="Generator"):
            family(5, 0)
    with pytest.raises(BadArgument, match="topics"):
        drifting_rows(5, rng, topics=0)
    with pytest.raises(BadArgument, match="length"):
        needle_rows(5, rng, length=0)
    with pytest.raises(BadArgument, match="Generator"):
        surprise_rows(5, np.random.RandomState(0))
    with pytest.raises(BadArgument, match="Generator"):
        lookalike_rows(5, 2, None)
    with pytest.raises(BadBudget, match="budget"):
        online_limit(5, 6)
    with pytest.raises(BadArgument, match="one with a trap"):
        trap_rows("optimum", 100, 5)
    with pytest.raises(BadArgument, match="more than 6 times"):
        trap_rows("lru", 30, 5)
    with pytest.raises(BadArgument, match="more than 6 times"):
        trap_rows("lru", 30, 1)
