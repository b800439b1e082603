"""Generation with a cache that shrinks, keys moved to their slot, samples, and what is refused."""

import dataclasses
import math

import numpy as np
import pytest
import torch
import transformers
from recorder_models import CACHE, tokens

from h2o_theory.engine.run import make_run
from h2o_theory.engine.tensors import head_tensors
from h2o_theory.errors import (
    BadArgument,
    BadBudget,
    OutOfRange,
    RecordingRefused,
    TextError,
    UnsupportedModel,
)
from h2o_theory.live import closed_loop, evaluate, generate, self_bleu
from h2o_theory.live.bleu import bleu
from h2o_theory.live.refuse import check_policy_runs_live
from h2o_theory.live.rotate import key_rotation
from h2o_theory.policies import Context, available, make_policy
from h2o_theory.recorder import record
from h2o_theory.recorder.tiny import tiny_model
from h2o_theory.trace import open_trace


@pytest.mark.parametrize("prefill", [None, 0, 5])
def test_generation_agrees_with_one_teacher_forced_pass(prefill):
    model, prompt = tiny_model("llama"), tokens(12)
    made = generate(model, prompt, 10, "h2o", 7, prefill=prefill)
    again = generate(model, prompt, 10, "h2o", 7, prefill=prefill)
    assert (made.ids == again.ids).all() and (made.ids[:12] == prompt[0].numpy()).all()
    rows = 12 if prefill is None else prefill
    result = evaluate(model, made.ids, "h2o", 7, prefill=rows)
    assert (made.sizes == result.sizes[: len(made.sizes)]).all()
    assert made.peak_kv_bytes == result.sizes[:-1].max() * result.entry_bytes
    assert made.held_bytes.max() == 3 * 2 * 6 * result.entry_bytes
    # Every chosen token was the most probable one of the teacher-forced pass too.
    with closed_loop(model, "h2o", 7, tokens=22, prefill=rows) as loop, torch.no_grad():
        logits = model(torch.tensor(made.ids)[None], **{CACHE: loop.cache}).logits[0]
    assert (logits.argmax(dim=-1)[11:-1].numpy() == made.continuation).all()


def test_the_full_cache_generates_what_the_model_generates():
    model, prompt = tiny_model("opt"), tokens(9)
    made = generate(model, prompt, 8)
    own = model.generate(prompt, max_new_tokens=8, do_sample=False)[0].numpy()
    assert (made.ids == own).all()


def test_sampling_depends_on_the_seed_alone():
    model, prompt = tiny_model("llama"), tokens(6)
    runs = [generate(model, prompt, 12, "sink", 6, temperature=1.5, seed=s).ids for s in (1, 1, 2)]
    assert (runs[0] == runs[1]).all()
    assert len(runs[0]) != len(runs[2]) or (runs[0] != runs[2]).any()


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_a_key_is_moved_as_if_it_had_been_embedded_there(family):
    model = tiny_model(family)
    head_dim = 16
    keys, delta = torch.randn(2, 5, head_dim), torch.tensor([0, 1, 7, 30, 3])
    place = torch.tensor([4, 9, 0, 50, 11])
    module = __import__(type(model).__module__, fromlist=["apply_rotary_pos_emb"])

    def embedded(positions):
        cos, sin = model.base_model.rotary_emb(keys, positions[None])
        return module.apply_rotary_pos_emb(keys[None], keys[None], cos, sin)[1][0]

    moved = key_rotation(model)(embedded(place), delta)
    assert torch.allclose(moved, embedded(place + delta), atol=2e-6)


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_slots_are_positions_while_nothing_is_missing_in_between(family):
    model, ids = tiny_model(family), tokens(24)
    for policy, budget in (("recent", 6), ("h2o", 24)):
        original = evaluate(model, ids, policy, budget)
        slot = evaluate(model, ids, policy, budget, positions="slot")
        assert np.abs(original.losses - slot.losses)[1:].max() < 2e-5
    gap = evaluate(model, ids, "sink", 6, positions="slot")
    assert np.abs(gap.losses - evaluate(model, ids, "sink", 6).losses)[1:].max() > 1e-3


def test_one_layer_with_slots_is_the_model_on_the_remaining_tokens():
    """With a single layer, keys depend on their token alone, so dropping is a shorter text."""
    model, ids = tiny_model("llama", num_hidden_layers=1), tokens(20)
    result = evaluate(model, ids, "sink:n_sink=2", 5, positions="slot")
    for t in range(5, 19):
        left = [0, 1, *range(t - 2, t + 1)]
        with torch.no_grad():
            logits = model(ids[:, left]).logits[0, -1]
        loss = -torch.log_softmax(logits, dim=-1)[ids[0, t + 1]].item()
        assert result.losses[t + 1] == pytest.approx(loss, abs=2e-5)


def test_self_bleu_by_hand():
    assert self_bleu(["abcd" * 3] * 3) == pytest.approx(1.0)
    assert self_bleu(["abcdef", "uvwxyz"]) < 0.03
    # 1-grams: 3 of 4, 2-grams: 1 of 3, 3-grams: none of 2 (0.1), 4-grams: none of 1 (0.1).
    expected = math.exp((math.log(3 / 4) + math.log(1 / 3) + math.log(0.1 / 2) + math.log(0.1)) / 4)
    assert bleu("abxc", ["abyc"]) == pytest.approx(expected)
    # "aa" against "a" and "ba": one of two 1-grams, no 2-gram; the shorter reference is farther.
    assert bleu("aa", ["a", "ba"]) == pytest.approx(math.sqrt(1 / 2 * 0.1))
    assert bleu("ab", ["abcd"]) == pytest.approx(math.exp(1 - 4 / 2))
    for wrong in ([], ["a"]):
        with pytest.raises(BadArgument, match="Self-BLEU"):
            self_bleu(wrong)


@pytest.mark.parametrize(
    "policy, budget, error, words",
    [
        ("belady", 5, BadArgument, "yet to be computed"),
        ("optimum", 5, BadArgument, "yet to be computed"),
        ("h2o:rows=raw", 5, BadArgument, "rows=renormalised"),
        ("greedy", 5, BadArgument, "greedy:rows=renormalised"),
        ("spatten", 5, BadArgument, "shared by all layers"),
        ("expected_attention", 5, BadArgument, "rotary embedding"),
        ("sink:n_sink=9", 5, BadBudget, "protected parts"),
        ("h2o:n_recent=9", 5, BadBudget, "protected parts"),
        ("h2o", 0, BadBudget, "at least 1"),
        ("h2o", "120%", BadBudget, "at most 100%"),
        ("h2o", 99, BadBudget, "exceeds the sequence"),
        ("h2o", np.ones((3, 2)), BadBudget, "cannot be read"),
        ("h2o,lru", 5, BadArgument, "one policy at a time"),
        (object(), 5, BadArgument, "not a policy"),
    ],
)
def test_policies_and_budgets_that_cannot_run_are_refused(policy, budget, error, words):
    model, ids = tiny_model("llama"), tokens(20)
    with pytest.raises(error, match=words):
        evaluate(model, ids, policy, budget)
    assert model.config._attn_implementation == "sdpa"


def test_calls_that_cannot_be_taken_over_are_refused():
    model, ids = tiny_model("llama"), tokens(20)

    def run(*, tokens=20, batch=ids, **options):
        with closed_loop(model, "h2o", 5, tokens=tokens) as loop, torch.no_grad():
            model(batch, **{CACHE: loop.cache}, **options)

    with pytest.raises(RecordingRefused, match="more than one sequence"):
        run(batch=ids.repeat(2, 1))
    with pytest.raises(OutOfRange, match="longer than announced"):
        run(tokens=19)
    with pytest.raises(RecordingRefused, match="one causal sequence|sees no key|not one interval"):
        run(attention_mask=torch.tensor([[0] * 3 + [1] * 17]))
    with pytest.raises(RecordingRefused, match="KV cache of its own"):
        with closed_loop(model, "h2o", 5, tokens=20), torch.no_grad():
            cache = model(ids[:, :5], use_cache=True)[CACHE]
            model(ids[:, 5:6], **{CACHE: cache})
    with pytest.raises(TextError, match="nothing can be predicted"):
        evaluate(model, ids[:, :1], "h2o", 1)
    with pytest.raises(BadArgument, match="no prediction"):
        evaluate(model, ids, "h2o", 5, prefill=19)
    for prefill in (-1, 20):
        with pytest.raises(OutOfRange, match="prefill"):
            with closed_loop(model, "h2o", 5, tokens=20, prefill=prefill):
                pass
    with pytest.raises(BadArgument, match="unknown positions"):
        evaluate(model, ids, "h2o", 5, positions="both")
    for wrong in ({"new_tokens": 0}, {"new_tokens": 1, "temperature": -1.0}):
        with pytest.raises(BadArgument):
            generate(model, ids, **wrong)
    run()  # nothing of this left the model unusable


def test_models_that_cannot_be_intercepted_are_refused():
    bloom = transformers.BloomForCausalLM(
        transformers.BloomConfig(vocab_size=97, hidden_size=32, n_layer=1, n_head=2)
    )
    with pytest.raises(UnsupportedModel, match="family"):
        evaluate(bloom.eval(), tokens(5), "h2o", 2)
    with pytest.raises(UnsupportedModel, match="cannot be moved"):
        evaluate(tiny_model("opt"), tokens(9), "h2o", 4, positions="slot")
    with pytest.raises(UnsupportedModel, match="dropout"):
        evaluate(tiny_model("opt").train(), tokens(9), "h2o", 4)
    with pytest.raises(BadArgument, match="transformers"):
        evaluate(torch.nn.Linear(2, 2), tokens(9), "h2o", 4)


def test_recording_and_evicting_at_once_is_refused(tmp_path):
    model, ids = tiny_model("llama"), tokens(9)
    with pytest.raises(UnsupportedModel, match="implementation cannot be recorded"):
        with record(model, tmp_path / "t"), closed_loop(model, "h2o", 4, tokens=9):
            model(ids)
    assert not list(tmp_path.iterdir())


def online_policies():
    """Every registered policy that a model can follow, with rows as a model has them."""
    for name, cls in available().items():
        has_rows = "rows" in {item.name for item in dataclasses.fields(cls)}
        yield f"{name}:rows=renormalised" if has_rows else name


@pytest.mark.parametrize("text", sorted(online_policies()))
def test_every_policy_runs_in_the_model_or_says_why_not(text, tmp_path):
    """Below layer 0 nothing has been evicted, so there the model chooses what a replay chooses."""
    model, ids = tiny_model("gemma"), tokens(40)
    try:
        policy = check_policy_runs_live(text)
    except BadArgument as error:
        assert error.where == text.split(":")[0]
        for_replay_only = ("spatten", "expected_attention", "h2o_lm_eval")
        assert make_policy(text).kind == "clairvoyant" or error.where in for_replay_only
        return
    result = evaluate(model, ids, policy, 14, chunk=8, piece=30)
    if policy.name == "full":
        assert (result.evicted_at == 40).all()
        return
    with record(model, tmp_path / "t") as recording, torch.no_grad():
        model(ids)
    trace = open_trace(recording.path)
    for kv_head in range(2):
        heads = (0, 1) if policy.scope == "layer" else (kv_head,)
        rows = np.concatenate([trace.rows(0, head) for head in heads])
        tensors = head_tensors(trace, 0, kv_head, [policy])
        run = make_run(policy, Context(14, 40, 0, 0, heads[0], 0, tensors))
        run.advance(np.ascontiguousarray(rows), 0)
        assert (run.evicted_at == result.evicted_at[0, kv_head]).all()
