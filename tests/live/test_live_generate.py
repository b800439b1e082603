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
from h2o_theory.families import HALVES
from h2o_theory.live import closed_loop, evaluate, generate, self_bleu
from h2o_theory.live.admission import admit_live_policies
from h2o_theory.live.bleu import bleu
from h2o_theory.live.campaign import run_live
from h2o_theory.live.chooser import ScheduleChooser, keep_all
from h2o_theory.live.evaluate import evaluate_following, full_run
from h2o_theory.live.rotate import key_rotation
from h2o_theory.policies import Context, available, make_policy
from h2o_theory.policies.base import ROWS
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
    keys, delta = torch.randn(2, 5, head_dim), np.array([0, 1, 7, 30, 3])
    place = torch.tensor([4, 9, 0, 50, 11])
    module = __import__(type(model).__module__, fromlist=["apply_rotary_pos_emb"])

    def embedded(positions):
        cos, sin = model.base_model.rotary_emb(keys, positions[None])
        return module.apply_rotary_pos_emb(keys[None], keys[None], cos, sin)[1][0]

    moved = key_rotation(model)(embedded(place), delta)
    assert torch.allclose(moved, embedded(place + torch.from_numpy(delta)), atol=2e-6)


@pytest.mark.parametrize("family", sorted(HALVES))
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


@pytest.mark.parametrize("policy", ["h2o", "tova", "lru"])
def test_with_slots_a_policy_sees_the_rows_of_the_model_on_what_is_held(policy):
    """One layer and one kv_head: the model on the held tokens alone gives row and prediction."""
    model = tiny_model("llama", num_hidden_layers=1, num_key_value_heads=1)
    model.set_attn_implementation("eager")
    ids, budget, held = tokens(24), 6, []
    run = make_run(make_policy(policy), Context(budget, 24, 0, 0, 0, 0))
    result = evaluate(model, ids, policy, budget, positions="slot", chunk=5, piece=11)
    for t in range(24):
        held.append(t)
        with torch.no_grad():
            output = model(ids[:, held], output_attentions=True)
        rows = np.zeros((4, 1, 24))
        rows[:, 0, held] = output.attentions[0][0, :, -1].numpy()
        run.advance(rows, t)
        held = [j for j in held if run.evicted_at[j] > t]
        if t < 23:
            loss = -torch.log_softmax(output.logits[0, -1], dim=-1)[ids[0, t + 1]].item()
            assert result.losses[t + 1] == pytest.approx(loss, abs=2e-5)
    assert (result.evicted_at[0, 0] == run.evicted_at).all()


@pytest.mark.parametrize("policy", ["h2o", "sink", "key_diff", "h2o_lm_eval", "greedy"])
@pytest.mark.parametrize("positions", ["original", "slot"])
def test_the_size_of_chunks_and_pieces_changes_nothing(policy, positions):
    model, ids = tiny_model("qwen2").double(), tokens(30)
    raw = policy in ("h2o_lm_eval", "greedy")
    if raw and positions == "slot":
        with pytest.raises(BadArgument, match="has no slot"):
            evaluate(model, ids, policy, 8, positions=positions)
        return
    one, many = (
        evaluate(model, ids, policy, 8, positions=positions, prefill=4, chunk=chunk, piece=piece)
        for chunk, piece in ((1, 1), (7, 30))
    )
    # The model counts in float64, since the order of a sum moves a float32 loss by 2e-5. What is
    # left is the log-softmax, always in float32: each loss is right to 2 units in the last place.
    unit = np.spacing(np.float32(one.losses[1:].max()))
    assert np.abs(one.losses - many.losses)[1:].max() <= 4 * unit
    assert (one.evicted_at == many.evicted_at).all()


class RowsSeen(ScheduleChooser):
    """A schedule that can still change, and the sum over heads of the latest row seen under it."""

    needs_rows = True

    def __init__(self, evicted_at, seen):
        super().__init__(evicted_at)
        self._seen = seen

    def advance(self, rows, start, sink_share=None):
        (t,) = range(start, start + rows.shape[1])
        held = self.visible(np.arange(rows.shape[2]), t, t + 1)[0]
        mass = rows[:, 0, held].sum(axis=-1, keepdims=True)
        self._seen[t, held] += (rows[:, 0, held] / mass).sum(axis=0)


def test_one_set_for_the_whole_model_is_chosen_by_the_rows_of_all_layers():
    """Against the definition: after every token the text is read anew under the schedule so far."""
    model, ids, budget = tiny_model("llama"), tokens(16), 5
    evicted_at, score = np.full(16, 16), np.zeros(16)
    for t in range(16):
        seen = np.zeros((16, 16))

        def choosers(layer, kv_heads, seen=seen):
            return [((head,), RowsSeen(evicted_at, seen)) for head in range(kv_heads)]

        evaluate_following(model, ids, choosers, piece=1)
        score += seen[t]
        held = np.flatnonzero((np.arange(16) <= t) & (evicted_at >= t))
        if len(held) == budget:
            evicted_at[held[np.argmin(score[held])]] = t
    result = evaluate(model, ids, "spatten", budget)
    assert (result.evicted_at == evicted_at).all()
    made = generate(model, ids[:, :9], 5, "spatten", budget, prefill=0)
    assert made.sizes.max() == budget * 3 * 2
    for chunk in (64, 1):
        with pytest.raises(RecordingRefused, match="token by token"):
            with closed_loop(model, "spatten", budget, tokens=16, chunk=chunk) as loop:
                model(ids, **{CACHE: loop.cache})


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
        ("spatten", np.array([[4, 4], [5, 5], [5, 5]]), BadBudget, "the same budget"),
        ("expected_attention", 5, BadArgument, "rotary embedding"),
        ("sink:n_sink=9", 5, BadBudget, "protected parts"),
        ("h2o:n_recent=9", 5, BadBudget, "protected parts"),
        ("h2o", 0, BadBudget, "at least 1"),
        ("h2o", "120%", BadBudget, "at most 100%"),
        ("h2o", 99, BadBudget, "exceeds the sequence"),
        ("h2o", np.ones((3, 2)), BadBudget, "cannot be read"),
        ("h2o,lru", 5, BadArgument, "must be one each"),
        (object(), 5, BadArgument, "policies must be"),
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
    with pytest.raises(BadArgument, match="leave a prediction"):
        evaluate(model, ids, "h2o", 5, prefill=19)
    for prefill in (-1, 20):
        with pytest.raises(OutOfRange, match="prefill"):
            with closed_loop(model, "h2o", 5, tokens=20, prefill=prefill):
                pass
    with pytest.raises(BadArgument, match="positions must be"):
        evaluate(model, ids, "h2o", 5, positions="both")
    for wrong in ({"new_tokens": 0}, {"temperature": -1}, {"temperature": math.nan}, {"seed": -1}):
        with pytest.raises(BadArgument):
            generate(model, ids, **{"new_tokens": 1} | wrong)
    for wrong in ({"seed": -1}, {"seed": 0.5}, {"piece": 0}, {"chunk": 0}, {"prefill": "3"}):
        with pytest.raises(BadArgument, match=next(iter(wrong))):
            evaluate(model, ids, "random", 5, **wrong)
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
    """Every registered policy, with either kind of rows if it can have both."""
    for name, cls in available().items():
        if name == "schedule":
            continue  # it needs a file: the test below
        has_rows = "rows" in {item.name for item in dataclasses.fields(cls)}
        yield from [f"{name}:rows={rows}" for rows in ROWS] if has_rows else [name]


def test_a_saved_schedule_is_followed_in_every_layer(tmp_path):
    model, ids = tiny_model("llama"), tokens(30)
    own = evaluate(model, ids, "h2o", 9).evicted_at
    heads = {
        f"{layer}.{head}": row for layer, rows in enumerate(own) for head, row in enumerate(rows)
    }
    np.savez(tmp_path / "h2o.npz", **heads)
    again = evaluate(model, ids, f"schedule:file={tmp_path / 'h2o.npz'}", 9)
    assert (again.evicted_at == own).all()
    assert again.losses[1:] == pytest.approx(evaluate(model, ids, "h2o", 9).losses[1:], abs=1e-6)


@pytest.mark.parametrize("text", sorted(online_policies()))
def test_every_policy_runs_in_the_model_or_says_why_not(text, tmp_path):
    """Below layer 0 nothing has been evicted, so there the model chooses what a replay chooses."""
    model, ids = tiny_model("gemma"), tokens(40)
    try:
        (policy,) = admit_live_policies(text)
    except BadArgument as error:
        assert error.where == text.split(":")[0]
        assert make_policy(text).kind == "clairvoyant"
        return
    if policy.scope == "model":
        return  # its rows are those of all layers, see the test above
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


def test_a_campaign_refuses_a_model_without_such_positions_before_any_work(tmp_path):
    """Learned positions end with the context, and cannot be counted within the cache."""
    model = tiny_model("gpt2", max_position_embeddings=24)
    for positions in ("original", "slot"):
        with pytest.raises(BadArgument, match="at most 24.*No full cache"):
            run_live(model, [tokens(30)], "h2o", 5, out=tmp_path / "c", positions=positions)
    for policy, positions in (("h2o", "slot"), ("sink:positions=slot", "original")):
        with pytest.raises(UnsupportedModel, match="cannot be moved"):
            run_live(model, [tokens(20)], policy, 5, out=tmp_path / "c", positions=positions)
    with pytest.raises(BadArgument, match="at most 24"):
        full_run(model, tokens(30))
    for windows in ([], [tokens(20), tokens(19)]):
        with pytest.raises(BadArgument, match="equal length"):
            run_live(model, windows, "h2o", 5, out=tmp_path / "c")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("policies", "positions", "words"),
    [
        ("recent,expected_attention", "original", "cannot be taken out"),
        ("recent,h2o:rows=raw", "slot", "has no slot"),
    ],
)
def test_a_campaign_refuses_before_any_work(policies, positions, words, tmp_path):
    model, windows = tiny_model("llama"), [tokens(20)]
    with pytest.raises(BadArgument, match=words):
        run_live(model, windows, policies, "5", out=tmp_path / "c", positions=positions)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("served", [(0,), (0, 1, 1), (0, 1, 2)])
def test_choosers_serve_every_kv_head_once(served):
    model, ids = tiny_model("llama"), tokens(8)
    with pytest.raises(BadArgument, match="serve other kv_heads"):
        evaluate_following(model, ids, lambda *_: [((head,), keep_all(8)) for head in served])
