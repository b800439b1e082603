"""Turns of generation: what is stored is what each sequence of a batch attended to."""

import numpy as np
import pytest
import torch
import transformers
from recorder_models import CACHE, leftovers, own_rows, tokens, traced_rows

from h2o_theory.errors import RecordingRefused
from h2o_theory.recorder import record
from h2o_theory.recorder.tiny import tiny_model
from h2o_theory.trace import open_trace

NEVER = 2
"""A token that the tiny model writes nowhere in these tests."""


def ending(ids, rows, new=16):
    """A tiny model, what it writes freely after each of the prompts, and a token that ends some."""
    model = tiny_model("llama")
    free = model.generate(ids, max_new_tokens=new, do_sample=False, eos_token_id=None)[:, 8:]
    end = next(t for t in free[0].tolist()[1:] if t not in free[rows].tolist())
    assert NEVER not in free
    return model, end


def given_to_the_model(model, end, pad):
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = end, pad
    return {}


def given_to_generate(model, end, pad):
    return {"eos_token_id": end, "pad_token_id": pad}


def given_as_a_config(model, end, pad):
    config = transformers.GenerationConfig(eos_token_id=[end, NEVER], pad_token_id=pad)
    return {"generation_config": config}


def given_as_a_criterion(model, end, pad):
    """Ends a sequence at a token that no setting calls the end."""

    class Stop(transformers.StoppingCriteria):
        def __call__(self, input_ids, scores, **_):
            return input_ids[:, -1] == end

    return {"stopping_criteria": [Stop()], "eos_token_id": NEVER, "pad_token_id": pad}


WAYS = [given_to_the_model, given_to_generate, given_as_a_config, given_as_a_criterion]


@pytest.mark.parametrize("pad", [0, 1, "end"])
@pytest.mark.parametrize("way", WAYS)
def test_however_generation_is_told_of_its_end(tmp_path, way, pad):
    """Each trace holds the tokens that its sequence attended to, and no padding after its end."""
    ids = tokens(8).repeat(2, 1)
    ids[1, 3:] += 1
    model, end = ending(ids, 1)
    options = way(model, end, end if pad == "end" else pad)
    with record(model, tmp_path / "t") as recording:
        output = model.generate(ids, max_new_tokens=16, do_sample=False, **options).tolist()
    first, second = (open_trace(path).spec.token_ids for path in recording.paths)
    stop = output[0].index(end, 8) + 1
    assert first == tuple(output[0][:stop]) and second == tuple(output[1][:-1])
    rows = own_rows(model, torch.tensor([first]))
    trace = open_trace(recording.paths[0])
    assert max(np.abs(traced_rows(trace, n) - rows[n]).max() for n in trace.layers) <= 2e-5


def test_real_tokens_that_look_like_padding_are_kept(tmp_path):
    """A sequence that goes on after the model's own end token, as nothing was told to end there."""
    ids = tokens(8).repeat(2, 1)
    ids[1, 3:] += 1
    model, end = ending(ids, 1)
    after = model.generate(ids, max_new_tokens=16, do_sample=False, eos_token_id=None)[0].tolist()
    given_to_the_model(model, end, after[after.index(end, 8) + 1])
    with record(model, tmp_path / "t") as recording:
        output = model.generate(ids, max_new_tokens=16, do_sample=False, eos_token_id=NEVER)
    for path, row in zip(recording.paths, output.tolist(), strict=True):
        assert open_trace(path).spec.token_ids == tuple(row[:-1])


def test_a_sequence_that_ended_goes_on_in_the_next_turn(tmp_path):
    ids = tokens(8).repeat(2, 1)
    ids[1, 3:] += 1
    model, end = ending(ids, 1)
    options = {"do_sample": False, "eos_token_id": end, "pad_token_id": 0}
    cache = transformers.DynamicCache(config=model.config)
    with record(model, tmp_path / "t") as recording:
        first = model.generate(ids, max_new_tokens=12, **{CACHE: cache}, **options)
        stop = first[0].tolist().index(end, 8) + 1
        mask = torch.ones_like(first)
        mask[0, stop:] = 0
        question = torch.tensor([[11, 12, 13], [21, 22, 23]])
        both = torch.cat([first, question], dim=1)
        mask = torch.cat([mask, torch.ones_like(question)], dim=1)
        second = model.generate(
            both,
            attention_mask=mask,
            max_new_tokens=3,
            min_new_tokens=3,
            **{CACHE: cache},
            **options,
        )
    expected = [
        [*second[0, :stop].tolist(), *second[0, first.shape[1] : -1].tolist()],
        second[1, :-1].tolist(),
    ]
    for path, sequence in zip(recording.paths, expected, strict=True):
        trace = open_trace(path)
        assert trace.spec.token_ids == tuple(sequence)
        rows = own_rows(model, torch.tensor([sequence]))
        assert max(np.abs(traced_rows(trace, n) - rows[n]).max() for n in trace.layers) <= 2e-5


@pytest.mark.parametrize(
    "options, match",
    [
        ({"num_beams": 2}, "beam search takes back.*finished sequence"),
        ({"prompt_lookup_num_tokens": 3}, "assisted generation takes back"),
        ({"assistant_model": "tiny"}, "assisted generation takes back"),
    ],
)
def test_generation_that_takes_tokens_back_is_refused(tmp_path, options, match):
    model = tiny_model("llama")
    if "assistant_model" in options:
        options = {"assistant_model": tiny_model("llama", seed=8)}
    with pytest.raises(RecordingRefused, match=match):
        with record(model, tmp_path / "t"):
            model.generate(tokens(9), max_new_tokens=8, do_sample=False, **options)
    assert leftovers(tmp_path) == []


def test_nothing_of_the_library_stays_replaced(tmp_path):
    mixin = transformers.GenerationMixin
    before = mixin.generate, mixin._get_stopping_criteria
    with record(outer := tiny_model("llama"), tmp_path / "a"):
        with pytest.raises(ZeroDivisionError), record(inner := tiny_model("llama"), tmp_path / "b"):
            inner.generate(tokens(4), max_new_tokens=2, do_sample=False)
            raise ZeroDivisionError
        assert mixin.generate is not before[0]
        outer.generate(tokens(4), max_new_tokens=2, do_sample=False)
    assert (mixin.generate, mixin._get_stopping_criteria) == before
