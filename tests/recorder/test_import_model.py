"""What transformers gives as ``output_attentions``, imported and compared with a recording."""

import numpy as np
import pytest
import torch
from recorder_models import tokens, traced_rows

from h2o_theory.errors import InvalidAttention
from h2o_theory.recorder import record
from h2o_theory.recorder.tiny import tiny_model
from h2o_theory.trace import Trace, import_attention, open_trace


@pytest.fixture(scope="module")
def attentions():
    """A tuple of [2, H, T, T] per layer, and the rows a recording of the same model holds."""
    model, ids = tiny_model("llama", attention="eager"), torch.cat([tokens(19), tokens(19, 1)])
    with torch.no_grad():
        return model, ids, model(ids, output_attentions=True, use_cache=False).attentions


def test_the_advice_for_a_pickle_works(attentions, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(attentions[2], "mine.pt")
    with pytest.raises(InvalidAttention) as caught:
        import_attention("mine.pt", "t")
    exec(caught.value.hint.split("in Python: ")[1], {})
    report = import_attention("attentions.safetensors", "t", kv_heads=2)
    assert len(report.paths) == 2 and report.worst_row_sum_error < 1e-5
    for b, path in enumerate(report.paths):
        for layer, array in enumerate(attentions[2]):
            assert np.array_equal(
                np.concatenate([open_trace(path).stored_rows(layer, h) for h in (0, 1)]),
                array[b].numpy(),
            )


def test_rows_agree_with_a_recording(attentions, tmp_path):
    model, ids, tensors = attentions
    with torch.no_grad(), record(model, tmp_path / "t"):
        model(ids[:1])
    made = Trace.from_attention([layer[:1] for layer in tensors], kv_heads=2)
    recorded = open_trace(tmp_path / "t")
    for layer in recorded.layers:
        assert np.abs(traced_rows(made, layer) - traced_rows(recorded, layer)).max() < 1e-5


def test_tensors_that_numpy_cannot_hold_are_refused_with_the_way_out(attentions):
    *_, tensors = attentions
    for spoiled in ([t.bfloat16() for t in tensors], [t.clone().requires_grad_() for t in tensors]):
        with pytest.raises(InvalidAttention, match="float..[.]numpy"):
            Trace.from_attention(spoiled)
    with pytest.raises(InvalidAttention, match="several sequences"):
        Trace.from_attention(tensors)
