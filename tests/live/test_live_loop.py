"""Eviction inside the model: exact against a plain token-by-token run, in any pieces."""

import numpy as np
import pytest
import reference
import torch
from live_referee import Referee, losses_token_by_token
from recorder_models import CACHE, tokens

from h2o_theory import PlainPolicy
from h2o_theory.errors import UnsupportedModel
from h2o_theory.families import FAMILIES
from h2o_theory.live import closed_loop
from h2o_theory.live.evaluate import evaluate, full_run
from h2o_theory.policies import Context, make_policy
from h2o_theory.policies.kernels import head_stream
from h2o_theory.recorder.tiny import tiny_model

TOLERANCE = 5e-5
"""Of losses around 6 nats, float32: other orders of summation in three layers."""

RULES = {
    "h2o": reference.H2O,
    "h2o:recent=0.25,n_sink=2": reference.H2O,
    "recent": reference.Recent,
    "sink": reference.Sink,
    "heavy": reference.Heavy,
    "lru": reference.Lru,
    "lfu": reference.Lfu,
    "greedy:rows=renormalised": reference.Greedy,
    "tova": reference.Tova,
    "tova:shared=kv_head": reference.Tova,
    "random": reference.Random,
}


def referee_for(text, budget, prefill=0):
    """The plain run that a policy given as text must agree with."""
    policy = make_policy(text)

    def make_rule(layer, kv_head):
        rule = RULES[text](budget, None)
        if text.startswith("greedy"):
            rule.kind = "renormalised"
        if text == "random":
            rule.stream = int(head_stream(Context(budget, 1, 0, layer, kv_head, 0)))
        for name in ("recent", "n_sink"):
            if hasattr(policy, name):
                setattr(rule, name, getattr(policy, name))
        return rule

    return Referee(make_rule, budget, prefill, policy.scope == "layer")


def assert_same(result, referee, model, ids):
    expected = losses_token_by_token(model, ids, referee)
    layers, heads, length = result.evicted_at.shape
    schedule = referee.schedule(layers, heads, length)
    # Nobody notices whether the last query's victim leaves.
    assert (np.minimum(result.evicted_at, length - 1) == np.minimum(schedule, length - 1)).all()
    assert np.abs(result.losses[1:] - expected).max() < TOLERANCE


@pytest.mark.parametrize("text", RULES)
def test_one_pass_equals_a_plain_token_by_token_run(text):
    model, ids = tiny_model("llama"), tokens(40)
    result = evaluate(model, ids, text, 9, chunk=16, piece=25)
    assert_same(result, referee_for(text, 9), model, ids)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_equals_a_plain_token_by_token_run(family):
    model, ids = tiny_model(family, attention="eager"), tokens(36)
    result = evaluate(model, ids, "h2o", "25%", chunk=8, piece=20)
    assert_same(result, referee_for("h2o", 9), model, ids)


@pytest.mark.parametrize("budget, prefill", [(1, 0), (2, 0), (6, 20), (30, 0), (1, 1)])
def test_extreme_budgets_and_a_prefill(budget, prefill):
    model, ids = tiny_model("llama"), tokens(30)
    result = evaluate(model, ids, "h2o", budget, prefill=prefill, chunk=7, piece=30)
    assert_same(result, referee_for("h2o", budget, prefill), model, ids)
    assert result.first == prefill + 1
    assert result.loss == pytest.approx(np.nanmean(result.losses[prefill + 1 :]))


@pytest.mark.parametrize("family", ("llama", "opt", "gpt_neox"))
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_full_budget_is_the_plain_model(family, attention):
    model, ids = tiny_model(family, attention=attention), tokens(40)
    with torch.no_grad():
        logits = model(ids).logits[0]
    plain = torch.nn.functional.cross_entropy(logits[:-1], ids[0, 1:], reduction="none").numpy()
    reference_run = full_run(model, ids, piece=17)
    for policy, budget in (("h2o", 40), ("full", 3)):
        result = evaluate(model, ids, policy, budget, reference=reference_run, chunk=9, piece=13)
        assert np.abs(result.losses[1:] - plain).max() < TOLERANCE
        assert result.agreement.all() and result.kl.max() < 1e-6
    assert np.abs(reference_run.losses[1:] - plain).max() < TOLERANCE


@pytest.mark.parametrize("chunk, piece", [(1, 1), (1, 40), (5, 3), (64, 40), (7, 11)])
def test_pieces_and_chunks_do_not_matter(chunk, piece):
    model, ids = tiny_model("llama"), tokens(40)
    whole = evaluate(model, ids, "lru", 8, chunk=40, piece=40)
    cut = evaluate(model, ids, "lru", 8, chunk=chunk, piece=piece)
    assert (whole.evicted_at == cut.evicted_at).all()
    assert np.abs(whole.losses - cut.losses)[1:].max() < TOLERANCE


def test_the_cache_really_shrinks():
    model, ids, budget = tiny_model("llama"), tokens(50), 6
    result = evaluate(model, ids, "h2o", budget, chunk=1, piece=1)
    entries = 3 * 2  # layers x kv_heads
    assert result.sizes.tolist() == [entries * min(t + 1, budget) for t in range(50)]
    assert result.entry_bytes == 2 * 16 * 4
    assert result.peak_kv_bytes == entries * budget * result.entry_bytes
    assert result.held_bytes <= result.peak_kv_bytes
    with closed_loop(model, "h2o", budget, tokens=50, chunk=1) as loop:
        for t in range(50):
            with torch.no_grad():
                model(ids[:, t : t + 1], **{CACHE: loop.cache})
            assert loop.held_bytes() == entries * min(t + 1, budget - 1) * result.entry_bytes


def test_a_policy_of_the_users_own_and_budgets_by_head():
    class Newest(PlainPolicy):
        name = "newest"

        def rate(self, t, positions):
            return positions

    model, ids = tiny_model("llama"), tokens(30)
    budgets = np.array([[3, 5], [7, 30], [2, 2]])
    own = evaluate(model, ids, Newest(), budgets)
    recent = evaluate(model, ids, "recent", budgets)
    assert (own.evicted_at == recent.evicted_at).all()
    assert np.abs(own.losses - recent.losses)[1:].max() < TOLERANCE
    assert own.sizes.max() == budgets.sum()


def test_generate_runs_inside_the_loop():
    model, ids = tiny_model("llama"), tokens(12)
    with closed_loop(model, "h2o", 5, tokens=20) as loop:
        out = model.generate(
            ids, **{CACHE: loop.cache}, max_new_tokens=8, min_new_tokens=8, do_sample=False
        )
        assert loop.seen == 19 and loop.held_bytes() == 3 * 2 * 4 * 2 * 16 * 4
    result = evaluate(model, out, "h2o", 5)
    left = np.where(result.evicted_at == 19, 20, result.evicted_at)  # the last was never read
    assert (loop.evicted_at == left).all()
    with torch.no_grad():
        assert (model(ids).logits == tiny_model("llama")(ids).logits).all()


def test_a_mask_is_read_anew_in_every_pass():
    """Decoding with one buffer, as static caches do: the same tensor, written to between passes."""
    model, ids = tiny_model("llama"), tokens(20)
    expected = evaluate(model, ids, "h2o", 6)
    for shown, hidden in ((True, False), (0.0, torch.finfo(torch.float32).min)):
        mask, losses = torch.full((1, 1, 1, 20), hidden), []
        with closed_loop(model, "h2o", 6, tokens=20) as loop, torch.no_grad():
            for t in range(20):
                mask[..., t] = shown
                cache = {CACHE: loop.cache}
                logits = model(ids[:, t : t + 1], attention_mask=mask, **cache).logits[0, 0]
                losses.append(-torch.log_softmax(logits, dim=-1))
            assert (loop.evicted_at == expected.evicted_at).all()
        found = [losses[t - 1][ids[0, t]].item() for t in range(1, 20)]
        assert np.abs(expected.losses[1:] - found).max() < TOLERANCE


def test_autocast_is_refused():
    model = tiny_model("llama")
    with pytest.raises(UnsupportedModel, match="torch.autocast"):
        with closed_loop(model, "h2o", 5, tokens=20), torch.autocast("cpu", torch.bfloat16):
            model(tokens(12))
