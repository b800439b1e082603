"""Batches: each sequence becomes a trace of its own, its padding gone."""

import shutil

import numpy as np
import pytest
import torch
import transformers
from recorder_models import (
    CACHE,
    LENGTHS,
    check_batch,
    leftovers,
    own_rows,
    padded,
    tokens,
    traced_rows,
)

from h2o_theory.errors import CannotWrite, OutputExists, RecordingRefused
from h2o_theory.recorder import record
from h2o_theory.recorder.tiny import tiny_model
from h2o_theory.trace import header_allowance, open_trace, predict_bytes, validate

FAMILIES = ["llama", "opt", "gpt2", "mistral", "gemma2", "gemma3_text", "gpt_oss"]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("attention", [None, "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_padding_is_gone(tmp_path, family, attention, side):
    model = tiny_model(family, attention=attention)
    ids, mask, sequences = padded(side)
    expected = own_rows(model, ids, attention_mask=mask)
    with torch.no_grad():
        plain = model(ids, attention_mask=mask).logits
        with record(model, tmp_path / "t") as recording:
            during = model(ids, attention_mask=mask).logits
    assert torch.equal(plain, during)
    assert leftovers(tmp_path / "t") == ["000000", "000001", "000002"]
    check_batch(recording, expected, mask, sequences)
    assert [open_trace(path).spec.prompt_length for path in recording.paths] == LENGTHS


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_sequence_has_the_rows_it_has_alone(tmp_path, side):
    """With positions counted from its own first token, as generation does."""
    model = tiny_model("gpt2")
    ids, mask, sequences = padded(side)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad(), record(model, tmp_path / "t") as recording:
        model(ids, attention_mask=mask, position_ids=positions)
    for path, sequence in zip(recording.paths, sequences, strict=True):
        trace, alone = open_trace(path), own_rows(model, sequence[None])
        for layer in trace.layers:
            assert np.abs(traced_rows(trace, layer) - alone[layer]).max() <= 1e-5


@pytest.mark.parametrize("family", ["llama", "mistral", "gpt_oss"])
def test_pieces_of_a_left_padded_batch(tmp_path, family):
    model = tiny_model(family)
    ids, mask, sequences = padded("left")
    expected = own_rows(model, ids, attention_mask=mask)
    cache = transformers.DynamicCache(config=model.config)
    with torch.no_grad(), record(model, tmp_path / "t") as recording:
        for start, stop in ((0, 3), (3, 11), (11, 12), (12, 14)):
            model(
                ids[:, start:stop], attention_mask=mask[:, :stop], **{CACHE: cache}, use_cache=True
            )
    check_batch(recording, expected, mask, sequences)


@pytest.mark.parametrize("family", ["llama", "opt", "gemma3_text", "gpt_oss"])
def test_generating_from_a_left_padded_batch(tmp_path, family):
    model = tiny_model(family)
    ids, mask, prompts = padded("left")
    options = {"attention_mask": mask, "max_new_tokens": 9, "min_new_tokens": 9}
    with record(model, tmp_path / "t") as recording:
        output = model.generate(ids, do_sample=False, **options)
    assert torch.equal(output, model.generate(ids, do_sample=False, **options))
    fed = output[:, :-1]
    whole = torch.cat([mask, torch.ones(3, 8, dtype=mask.dtype)], dim=1)
    sequences = [row[real.bool()] for row, real in zip(fed, whole, strict=True)]
    positions = {"position_ids": (whole.cumsum(-1) - 1).clamp(min=0)} if family != "opt" else {}
    expected = own_rows(model, fed, attention_mask=whole, **positions)
    check_batch(recording, expected, whole, sequences, accepted=2e-5)
    assert [open_trace(path).spec.prompt_length for path in recording.paths] == LENGTHS


@pytest.mark.parametrize("padding", [0, None])
def test_what_follows_the_end_of_a_generated_sequence_is_dropped(tmp_path, padding):
    """One sequence ends early; the padding it is then fed is no token of its trace."""
    model, ids = tiny_model("llama"), tokens(8).repeat(3, 1)
    ids[1, 3:] += 1
    options = {"max_new_tokens": 20, "do_sample": False, "eos_token_id": None}
    free = model.generate(ids, **options)[:, 8:].tolist()
    end = next(token for token in free[0] if token not in free[1])
    options |= {"eos_token_id": end, "pad_token_id": padding}
    model.generation_config.eos_token_id = end
    model.generation_config.pad_token_id = padding
    with record(model, tmp_path / "t") as recording:
        output = model.generate(ids, **options)
    first, second, third = (open_trace(path).spec.token_ids for path in recording.paths)
    assert first == third and first[-1] == end and end not in first[8:-1]
    assert first == tuple(output[0, : len(first)].tolist())
    assert second == tuple(output[1, :-1].tolist()) and len(second) == 27 > len(first)
    assert np.abs(
        traced_rows(open_trace(recording.paths[0]), 2) - own_rows(model, torch.tensor([first]))[2]
    ).max() <= 2e-5  # fmt: skip


def test_a_sequence_of_padding_only_is_refused(tmp_path):
    mask = torch.ones(2, 6, dtype=torch.long)
    mask[1] = 0
    model = tiny_model("opt")
    with pytest.raises(RecordingRefused, match="nothing but padding"):
        with torch.no_grad(), record(model, tmp_path / "t"):
            model(tokens(6).repeat(2, 1), attention_mask=mask)
    assert leftovers(tmp_path) == []


def test_the_folder_of_a_batch_is_not_taken_twice(tmp_path):
    model, ids = tiny_model("opt"), tokens(6).repeat(2, 1)
    with torch.no_grad(), record(model, tmp_path / "t"):
        model(ids)
    with pytest.raises(OutputExists, match="several traces"):
        with record(model, tmp_path / "t", overwrite=True):
            model(ids)
    assert leftovers(tmp_path / "t") == ["000000", "000001"] and leftovers(tmp_path) == ["t"]


def test_a_batch_does_not_go_into_the_trace_it_was_to_replace(tmp_path):
    model, ids = tiny_model("opt"), tokens(6)
    with torch.no_grad(), record(model, tmp_path / "t"):
        model(ids)
    before = leftovers(tmp_path / "t")
    with pytest.raises(OutputExists, match="inside a trace"):
        with torch.no_grad(), record(model, tmp_path / "t", overwrite=True):
            model(ids.repeat(2, 1))
    assert leftovers(tmp_path / "t") == before and leftovers(tmp_path) == ["t"]
    assert validate(open_trace(tmp_path / "t")).rows > 0


def test_the_traces_of_a_batch_must_fit_together(tmp_path, monkeypatch):
    model, ids = tiny_model("opt"), tokens(64)
    with torch.no_grad(), record(model, tmp_path / "one", tokens=64) as one:
        model(ids)
    spec = open_trace(one.path).spec
    room = 2 * (predict_bytes(spec) + header_allowance(spec)) + (64 << 20)
    usage = type("Usage", (), {"free": room})
    monkeypatch.setattr("shutil.disk_usage", lambda place: usage)
    with pytest.raises(CannotWrite, match="does not fit"):
        with torch.no_grad(), record(model, tmp_path / "t", tokens=64):
            model(ids.repeat(3, 1))
    assert leftovers(tmp_path) == ["one"]
    with torch.no_grad(), record(model, tmp_path / "t", tokens=64) as two:
        model(ids.repeat(2, 1))
    assert two.report.sequences == 2


def test_a_batch_that_was_cut_off_is_gone_on_with(tmp_path):
    """As after a kill: one trace has its name, one is unfinished, one was not begun."""
    model = tiny_model("llama")
    ids, mask, sequences = padded("left")
    expected = own_rows(model, ids, attention_mask=mask)
    with torch.no_grad(), record(model, tmp_path / "whole") as whole:
        model(ids, attention_mask=mask)
    (tmp_path / "t").mkdir()
    shutil.copytree(whole.paths[0], tmp_path / "t" / "000000")
    unfinished = shutil.copytree(whole.paths[1], tmp_path / "t" / "000001.unfinished")
    text = (unfinished / "spec.json").read_text().replace('"complete"', '"recording"')
    (unfinished / "spec.json").write_text(text)
    lines = (unfinished / "manifest.jsonl").read_text().splitlines(keepends=True)
    (unfinished / "manifest.jsonl").write_text("".join(lines[:-1]))
    with pytest.raises(OutputExists, match="Go on with it by --resume"):
        with record(model, tmp_path / "t"):
            pass
    with torch.no_grad(), record(model, tmp_path / "t", resume=True) as recording:
        model(ids, attention_mask=mask)
    check_batch(recording, expected, mask, sequences)
    assert leftovers(tmp_path / "t") == ["000000", "000001", "000002"]
    for ours, theirs in zip(recording.paths, whole.paths, strict=True):
        assert open_trace(ours).trace_id == open_trace(theirs).trace_id
