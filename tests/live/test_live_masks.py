"""Masks inside the model: they show the keys that a replay of the same text would show."""

import numpy as np
import pytest
import torch
from recorder_models import tokens

import h2o_theory as ht
from h2o_theory.engine.rows import HeadRows
from h2o_theory.live.evaluate import evaluate_following, full_run
from h2o_theory.live.loop import following
from h2o_theory.live.masking import MaskChooser
from h2o_theory.live.stream import cache_argument
from h2o_theory.masks import available_masks, make_mask, replay_masks
from h2o_theory.masks.run import MaskRun
from h2o_theory.recorder.tiny import tiny_model

TOKENS, BUDGET = 80, 16
MASKS = [
    "double_sparsity:channels=3,calibration=10",
    "double_sparsity:calibration=10,heavy=0.25",
    "fixed",
    "h2o_hf",
    "h2o_hf:recent=0.25",
    "hip:block=4,n_sink=4",
    "quest:page=4",
    "strided:heavy=0.5",
    "topk",
]


class Watched(MaskChooser):
    """Notes the keys that each query saw."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.noted = np.zeros((TOKENS, TOKENS), dtype=bool)

    def visible(self, positions, start, stop):
        seen = super().visible(positions, start, stop)
        self.noted[start:stop, positions] = seen
        return seen


def run(text, budget, *, family="llama", chunk=64, piece=TOKENS, prefill=0):
    """Logits [T, vocabulary] of the tiny model and the choosers by (layer, kv_head)."""
    model, ids, made, logits = tiny_model(family), tokens(TOKENS), {}, []
    mask = make_mask(text)

    def choosers(layer, kv_heads):
        for head in range(kv_heads):
            made[layer, head] = Watched(mask, budget, TOKENS, prefill)
        return [((head,), made[layer, head]) for head in range(kv_heads)]

    with following(model, choosers, tokens=TOKENS, chunk=chunk) as loop, torch.no_grad():
        for start in range(0, TOKENS, piece):
            cache = {cache_argument(model): loop.cache}
            logits.append(model(ids[:, start : start + piece], **cache).logits[0])
    return torch.cat(logits), made


def recorded(family, path):
    model = tiny_model(family)
    with ht.record(model, path):
        model(tokens(TOKENS))
    return ht.open_trace(path)


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return recorded("llama", tmp_path_factory.mktemp("masks") / "full.trace")


def replayed(trace, text, kv_head, prefill):
    """What the first layer's rows of the trace see, by the blocks of a replay."""
    mask = make_mask(text)
    keys = MaskRun(mask, BUDGET, TOKENS, prefill)
    tensors = {}
    if mask.needs == "qk":
        tensors = {
            "queries": trace.queries(0, kv_head).astype(float),
            "keys": trace.keys(0, kv_head).astype(float),
            "scaling": trace.layer(0).scaling,
        }
    return np.concatenate([keys.visible(block, **tensors) for block in HeadRows(trace, 0, kv_head)])


def test_every_mask_is_tried():
    assert {text.partition(":")[0] for text in MASKS} == set(available_masks())


@pytest.mark.parametrize("text", MASKS)
@pytest.mark.parametrize("prefill", [0, 30])
def test_the_first_layer_sees_what_a_replay_shows(trace, text, prefill):
    """No key was hidden below it, so its rows are those of the trace."""
    _, choosers = run(text, BUDGET, chunk=7, piece=33, prefill=prefill)
    for kv_head in trace.kv_heads(0):
        seen = choosers[0, kv_head].noted
        assert (seen == replayed(trace, text, kv_head, prefill)).all()
        table = replay_masks(
            trace, text, BUDGET, prefill=prefill, layers=[0], kv_heads=[kv_head]
        ).iloc[0]
        sizes = seen[prefill:].sum(axis=1)
        assert table.keys_seen_mean == sizes.mean() and table.keys_seen_max == sizes.max() <= BUDGET
        mass = np.where(seen, trace.rows(0, kv_head), 0.0).sum(axis=-1)[:, prefill:].mean()
        assert table.retained_mass == pytest.approx(mass, abs=1e-9)


@pytest.mark.parametrize("text", ["h2o_hf", "quest:page=4"])
@pytest.mark.parametrize("family", ["gpt_oss", "gemma2"])
def test_sinks_windows_and_softcaps(tmp_path, family, text):
    trace = recorded(family, tmp_path / "full.trace")
    _, choosers = run(text, BUDGET, family=family, chunk=7)
    for kv_head in trace.kv_heads(0):
        assert (choosers[0, kv_head].noted == replayed(trace, text, kv_head, 0)).all()


@pytest.mark.parametrize("text", [m for m in MASKS if not m.startswith(("fixed", "strided"))])
def test_room_for_every_key_is_the_model_itself(text):
    """Fixed and strided patterns leave keys out at any budget."""
    model = tiny_model("llama")
    with torch.no_grad():
        full = model(tokens(TOKENS)).logits[0]
    logits, choosers = run(text, TOKENS)
    assert all((chooser.noted == np.tri(TOKENS)).all() for chooser in choosers.values())
    assert torch.allclose(logits, full, atol=1e-4)


@pytest.mark.parametrize("text", ["h2o_hf", "quest:page=4", "double_sparsity:calibration=10"])
def test_chunks_and_pieces_change_nothing(text):
    """With one query at a time nothing is computed that a plain loop would not compute."""
    logits, choosers = run(text, BUDGET)
    for chunk, piece in ((1, TOKENS), (7, 33), (64, 1)):
        others, again = run(text, BUDGET, chunk=chunk, piece=piece)
        assert all((again[place].noted == made.noted).all() for place, made in choosers.items())
        assert torch.allclose(others, logits, atol=1e-4)


def test_hiding_keys_is_measured():
    model, ids = tiny_model("llama"), tokens(TOKENS)

    def choosers(layer, kv_heads):
        mask = make_mask("h2o_hf")
        return [((head,), MaskChooser(mask, BUDGET, TOKENS)) for head in range(kv_heads)]

    result = evaluate_following(model, ids, choosers, reference=full_run(model, ids))
    assert np.nanmean(result.kl) > 0 and (result.evicted_at == TOKENS).all()


def test_refusals():
    with pytest.raises(ht.errors.BadBudget, match="no key is left"):
        MaskChooser(make_mask("topk:heavy=1"), BUDGET, TOKENS)
    for text, words in (("quest:page=32", "page=32"), ("hip:block=32", "hip:block.*block=32")):
        with pytest.raises(ht.errors.BadBudget, match=words):
            run(text, BUDGET)
    model, chooser = tiny_model("llama"), MaskChooser(make_mask("topk"), BUDGET, TOKENS)
    with following(model, lambda *_: [((0, 1), chooser)], tokens=TOKENS, positions="slot") as loop:
        with pytest.raises(ht.errors.BadArgument, match="decides by the row itself"):
            model(tokens(TOKENS), **{cache_argument(model): loop.cache})
