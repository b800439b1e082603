"""Flash attention as the inner attention, by a stand-in: the package needs a GPU.

The stand-in takes what flash attention takes (no dense mask, a padding mask, a window, a softcap)
and computes in plain torch what its documentation says. The package itself was not run.
"""

import numpy as np
import pytest
import torch
import transformers
from recorder_models import CACHE, check_batch, own_rows, padded, tiny_model, tokens, traced_rows

from h2o_theory.errors import UnsupportedModel
from h2o_theory.recorder import record
from h2o_theory.trace import open_trace

NAME = "flash_attention_2"


def stand_in(module, query, key, value, attention_mask, scaling=None, sliding_window=None,
             softcap=None, **options):  # fmt: skip
    """Causal from the lower right, within the window, padding hidden; zeros for padded rows."""
    assert attention_mask is None or attention_mask.ndim == 2
    rows, keys, group = query.shape[2], key.shape[2], query.shape[1] // key.shape[1]
    key, value = (part.repeat_interleave(group, dim=1) for part in (key, value))
    lag = torch.arange(keys - rows, keys)[:, None] - torch.arange(keys)
    seen = (lag >= 0) & (lag < (sliding_window or keys))
    seen = seen.expand(len(query), 1, rows, keys)
    if attention_mask is not None:
        seen = seen & attention_mask[:, None, None, :].bool()
    logits = query @ key.transpose(2, 3) * scaling
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    logits = logits.masked_fill(~seen, -torch.inf)
    weights = torch.softmax(logits, dim=-1).nan_to_num()
    return (weights @ value).transpose(1, 2), None


@pytest.fixture
def flash(monkeypatch):
    """Make a model run the stand-in under the name of flash attention."""
    table = transformers.AttentionInterface._global_mapping
    monkeypatch.setitem(table, NAME, stand_in)
    monkeypatch.setattr(
        transformers.PreTrainedModel,
        "_check_and_adjust_attn_implementation",
        lambda self, name, *rest, **options: name,
    )

    def switch(family):
        model = tiny_model(family)
        model.set_attn_implementation(NAME)
        return model

    return switch


FAMILIES = ["llama", "mistral", "gemma2", "opt"]


@pytest.mark.parametrize("family", FAMILIES)
def test_one_pass_and_pieces(tmp_path, family, flash):
    model, ids = flash(family), tokens(30)
    expected = own_rows(model, ids)
    cache = transformers.DynamicCache(config=model.config)
    with torch.no_grad(), record(model, tmp_path / "one"):
        model(ids, use_cache=False)
    with torch.no_grad(), record(model, tmp_path / "pieces"):
        for piece in ids.split([4, 13, 1, 12], dim=1):
            model(piece, **{CACHE: cache}, use_cache=True)
    for name in ("one", "pieces"):
        trace = open_trace(tmp_path / name)
        assert trace.spec.model["attention"] == NAME
        for layer in trace.layers:
            assert np.abs(traced_rows(trace, layer) - expected[layer]).max() <= 1e-5
    assert model.config._attn_implementation == NAME


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", FAMILIES)
def test_padding(tmp_path, family, side, flash):
    model = flash(family)
    ids, mask, sequences = padded(side)
    expected = own_rows(model, ids, attention_mask=mask)
    with torch.no_grad(), record(model, tmp_path / "t") as recording:
        model(ids, attention_mask=mask)
    check_batch(recording, expected, mask, sequences)


def test_sinks_that_the_package_drops(tmp_path, flash):
    with pytest.raises(UnsupportedModel, match="flash_attention_2 attention drops.*sinks"):
        model = flash("gpt_oss")
        with torch.no_grad(), record(model, tmp_path / "t"):
            model(tokens(8))
