"""The benchmark of recording: what it measures, on a tiny shape; its refusals."""

import copy
import re

import numpy as np
import pytest
import torch
from recorder_models import tiny_model, tokens

from benchmarks import record_random
from benchmarks.__main__ import main
from benchmarks.record import run
from benchmarks.record_random import SHAPES, run_shapes
from h2o_theory.errors import BadArgument


def test_a_tiny_shape_on_the_cpu():
    table = run(device="cpu", shapes=["tiny"], tokens=48)
    (row,) = table.to_dict("records")
    assert row["size"] == 48 and row["ratio"] > 0 and "tiny-shaped" in row["benchmark"]
    deviation = float(re.search(r"largest deviation (\S+);", row["note"])[1])
    assert 0 < deviation < 0.05


def test_a_lie_would_show(monkeypatch):
    """The reference is independent: with other weights it is far from the trace."""
    honest = copy.deepcopy

    def other(thing, *memo):
        changed = honest(thing, *memo)
        if hasattr(changed, "q_proj"):
            with torch.no_grad():
                changed.q_proj.weight.neg_()
        return changed

    monkeypatch.setattr(record_random.copy, "deepcopy", other)
    (row,) = run_shapes(["tiny"], device="cpu", tokens=48).to_dict("records")
    assert float(re.search(r"largest deviation (\S+);", row["note"])[1]) > 0.3


@pytest.mark.parametrize("family", ["llama", "opt", "gpt_neox"])
def test_eager_rows_are_the_models_own(family):
    model, ids = tiny_model(family, attention="eager"), tokens(20)
    module = record_random.attention_modules(model)[1]
    kept = []
    hook = module.register_forward_pre_hook(
        lambda module, args, kwargs: kept.append((args, kwargs)), with_kwargs=True
    )
    with torch.no_grad():
        expected = model(ids, output_attentions=True, use_cache=False).attentions[1][0]
    hook.remove()
    rows = record_random._eager_rows(module, *kept[0], np.arange(20))
    assert np.abs(rows - expected.transpose(0, 1).numpy()).max() < 1e-6


@pytest.mark.parametrize("shape, layers, width", [("opt-6.7b", 32, 4096), ("llama-7b", 32, 4096)])
def test_the_published_shapes(shape, layers, width):
    sizes = SHAPES[shape][1]
    assert sizes["num_hidden_layers"] == layers and sizes["hidden_size"] == width
    mlp = {"opt": 2, "llama": 3}[SHAPES[shape][0]] * sizes.get("ffn_dim", 11008) * width
    weights = layers * (4 * width**2 + mlp) + sizes["vocab_size"] * width
    assert 6.5e9 < weights < 6.9e9


def test_what_is_not_there(capsys):
    with pytest.raises(BadArgument, match="got huge; expected opt-6.7b"):
        run_shapes(["huge"], device="cpu")
    with pytest.raises(BadArgument, match="got 0"):
        run(tokens=0)
    assert main(["optimum", "--device", "cpu"]) == 2
    assert "benchmarks record" in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert main(["record", "--device", "cuda"]) == 2
        assert "got cuda" in capsys.readouterr().err
