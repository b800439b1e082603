"""Recording changes nothing: same logits, implementation restored, no trace after an error."""

import copy
import errno
import gc
import threading
import weakref

import numpy as np
import pytest
import torch
import transformers
from recorder_models import (
    CACHE,
    FAMILIES,
    LAYERS,
    leftovers,
    own_rows,
    tokens,
    traced_rows,
)

from h2o_theory.errors import (
    CannotWrite,
    H2OTheoryError,
    OutputExists,
    RecordingRefused,
    UnfinishedTrace,
)
from h2o_theory.recorder import buffer, record, registration
from h2o_theory.recorder.tiny import tiny_config, tiny_model
from h2o_theory.store import atomic
from h2o_theory.trace import open_trace


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_bit_identical(tmp_path, family, attention, dtype):
    model, ids = tiny_model(family, attention=attention, dtype=dtype), tokens(40)
    with torch.no_grad():
        before = model(ids).logits
        with record(model, tmp_path / "t"):
            during = model(ids).logits
        after = model(ids).logits
    assert torch.equal(before, during) and torch.equal(before, after)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_implementation_is_restored(tmp_path, family, attention):
    model, ids = tiny_model(family, attention=attention), tokens(10)
    with record(model, tmp_path / "t"):
        assert model.config._attn_implementation == registration.NAME
        model(ids)
    assert model.config._attn_implementation == attention
    with pytest.raises(ZeroDivisionError), record(model, tmp_path / "u"):
        model(ids)
        1 / 0  # noqa: B018
    assert model.config._attn_implementation == attention
    assert not model.get_input_embeddings()._forward_pre_hooks
    assert not registration._inner_names and not len(registration._sessions)


def test_gradients_flow_as_without_recording(tmp_path):
    model, ids = tiny_model("llama"), tokens(10)
    weight = model.model.layers[0].self_attn.q_proj.weight
    model(ids, labels=ids).loss.backward()
    expected, weight.grad = weight.grad.clone(), None
    with record(model, tmp_path / "t"):
        model(ids, labels=ids).loss.backward()
    assert torch.equal(weight.grad, expected)


def test_an_error_in_the_block_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(buffer, "SEGMENT_BYTES", 1)  # so that segments are on disk by then
    model, ids = tiny_model("llama"), tokens(30)
    with pytest.raises(KeyboardInterrupt), record(model, tmp_path / "t"):
        model(ids)
        assert leftovers(tmp_path) == ["t.unfinished"]
        raise KeyboardInterrupt
    assert leftovers(tmp_path) == []


def test_a_block_without_a_forward_pass_is_refused(tmp_path):
    model = tiny_model("opt")
    with pytest.raises(RecordingRefused, match="nothing was recorded"):
        with record(model, tmp_path / "t"):
            pass
    assert leftovers(tmp_path) == []


def test_a_swallowed_refusal_still_spoils_the_recording(tmp_path):
    model, ids = tiny_model("opt"), tokens(10)
    with pytest.raises(RecordingRefused, match="number of sequences changed"):
        with record(model, tmp_path / "t"):
            model(ids)
            try:
                model(ids.repeat(2, 1))
            except RecordingRefused:
                pass
    assert leftovers(tmp_path) == []


def test_an_existing_output_is_refused_before_any_work(tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "mine.txt").write_text("keep")
    reached = False
    with pytest.raises(OutputExists), record(tiny_model("opt"), tmp_path / "t"):
        reached = True
    assert not reached and leftovers(tmp_path / "t") == ["mine.txt"]


def test_overwriting_replaces_a_trace_only_on_success(tmp_path):
    model = tiny_model("opt")
    with record(model, tmp_path / "t"):
        model(tokens(10))
    with pytest.raises(RecordingRefused), record(model, tmp_path / "t", overwrite=True):
        pass
    assert open_trace(tmp_path / "t").tokens == 10
    with record(model, tmp_path / "t", overwrite=True):
        model(tokens(20))
    assert open_trace(tmp_path / "t").tokens == 20 and leftovers(tmp_path) == ["t"]


def test_nothing_keeps_the_model_alive(tmp_path):
    model = tiny_model("llama")
    with record(model, tmp_path / "t") as recording:
        model(tokens(10))
    alive = [weakref.ref(model), weakref.ref(model.model.layers[0].self_attn)]
    del model
    gc.collect()
    assert [reference() for reference in alive] == [None, None]
    assert recording.report.rows == 10


def test_tensors_do_not_pile_up_over_recordings(tmp_path):
    model, ids = tiny_model("llama"), tokens(10)

    def count(number):
        for _ in range(number):
            with torch.no_grad(), record(model, tmp_path / "t", overwrite=True):
                model(ids)
        gc.collect()
        return sum(type(thing) is torch.Tensor for thing in gc.get_objects())

    assert count(2) == count(5)


def test_many_small_segments_read_as_one(tmp_path, monkeypatch):
    model, ids = tiny_model("llama"), tokens(30)
    with torch.no_grad(), record(model, tmp_path / "large"):
        model(ids)
    monkeypatch.setattr(buffer, "SEGMENT_BYTES", 3000)
    cache = transformers.DynamicCache(config=model.config)
    with torch.no_grad(), record(model, tmp_path / "small"):
        for piece in ids.split([11, 1, 1, 17], dim=1):
            model(piece, **{CACHE: cache}, use_cache=True)
    large, small = open_trace(tmp_path / "large"), open_trace(tmp_path / "small")
    assert len(leftovers(tmp_path / "small")) > len(leftovers(tmp_path / "large")) + 5
    for layer in range(LAYERS):
        assert np.abs(traced_rows(large, layer) - traced_rows(small, layer)).max() < 1e-5


def test_a_full_disk_is_named_and_leaves_a_plainly_unfinished_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(buffer, "SEGMENT_BYTES", 1)
    written = atomic.write_bytes

    def full(path, data):
        if path.name == "seg-000002.safetensors":
            raise OSError(errno.ENOSPC, "No space left on device")
        written(path, data)

    model = tiny_model("opt")
    with monkeypatch.context() as patch, pytest.raises(CannotWrite, match="No space left.*resume"):
        patch.setattr("h2o_theory.trace.writer.write_bytes", full)
        with record(model, tmp_path / "t"):
            model(tokens(10))
    assert leftovers(tmp_path) == ["t.unfinished"]
    with pytest.raises(UnfinishedTrace, match="2 segments"):
        open_trace(tmp_path / "t")


def test_two_models_in_two_threads(tmp_path):
    models = {family: tiny_model(family) for family in ("llama", "gpt_neox")}
    inputs = {family: tokens(40, seed) for seed, family in enumerate(models)}
    failures, barrier = [], threading.Barrier(2)

    def run(family):
        try:
            with torch.no_grad(), record(models[family], tmp_path / family):
                barrier.wait(timeout=30)
                models[family](inputs[family])
                barrier.wait(timeout=30)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(family,)) for family in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for family, model in models.items():
        trace, expected = open_trace(tmp_path / family), own_rows(model, inputs[family])
        assert np.abs(traced_rows(trace, 2) - expected[2]).max() < 1e-5


def test_recording_twice_at_once_is_refused(tmp_path):
    model = tiny_model("llama")
    with record(model, tmp_path / "t"):
        model(tokens(10))
        with pytest.raises(H2OTheoryError), record(model, tmp_path / "u"):
            pass
        assert model.config._attn_implementation == registration.NAME
    assert leftovers(tmp_path) == ["t"]


def test_a_model_that_shares_the_config_passes_through(tmp_path):
    """Two models built on one config object switch together; only the recorded one is captured."""
    config = tiny_config("llama")
    config._attn_implementation = "sdpa"
    first, second = (transformers.LlamaForCausalLM(config).eval() for _ in range(2))
    assert first.config is second.config
    ids = tokens(20)
    with torch.no_grad():
        expected = second(ids).logits
        with record(first, tmp_path / "t"):
            first(ids)
            assert torch.equal(second(ids).logits, expected)
        assert torch.equal(second(ids).logits, expected)
    rows = own_rows(first, ids)
    assert np.abs(traced_rows(open_trace(tmp_path / "t"), 0) - rows[0]).max() < 1e-5


def test_a_copy_made_while_recording_says_what_is_wrong(tmp_path):
    model, ids = tiny_model("llama"), tokens(10)
    with record(model, tmp_path / "t"):
        model(ids)
        stray = copy.deepcopy(model)
    with pytest.raises(RecordingRefused, match="set_attn_implementation"):
        stray(ids)


def test_progress_is_told_by_layer_piece_and_step(tmp_path):
    seen, model = [], tiny_model("opt")
    cache = transformers.DynamicCache(config=model.config)
    with (
        torch.no_grad(),
        record(
            model,
            tmp_path / "t",
            layers=[0, 2],
            tokens=18,
            progress=lambda *step: seen.append(step),
        ),
    ):
        for piece in tokens(18).split([10, 6, 1, 1], dim=1):
            model(piece, **{CACHE: cache}, use_cache=True)
    assert seen == [
        (1, 2, "tokens 0 to 9, layers"), (2, 2, "tokens 0 to 9, layers"),
        (1, 2, "tokens 10 to 15, layers"), (2, 2, "tokens 10 to 15, layers"),
        (1, 2, "tokens one at a time"), (2, 2, "tokens one at a time"),
    ]  # fmt: skip
