"""Rotary embedding taken out of what real architectures record."""

import numpy as np
import pytest
from recorder_models import tokens

import h2o_theory as ht
from h2o_theory.engine.tensors import HALVES, head_tensors
from h2o_theory.errors import BadArgument
from h2o_theory.policies import make_policy
from h2o_theory.recorder.tiny import tiny_model

DEFAULT_ROPE = sorted(HALVES - {"llama"})  # the tiny LLaMA has llama3 scaling


def record(family, folder):
    model = tiny_model(family)
    with ht.record(model, folder / family):
        model(tokens(1).repeat(1, 20))
    return ht.open_trace(folder / family)


@pytest.mark.parametrize("family", DEFAULT_ROPE)
def test_queries_of_one_token_are_the_same_wherever_it_stands(family, tmp_path):
    """In the first layer only the position tells twenty copies of a token apart."""
    trace = record(family, tmp_path)
    for kv_head in trace.kv_heads(0):
        tensors = head_tensors(trace, 0, kv_head, [make_policy("expected_attention")])
        moved, still = tensors.unrotated - tensors.unrotated[:, :1], tensors.queries
        assert np.abs(moved).max() < 2e-5 * np.abs(still).max()
        assert np.abs(still - still[:, :1]).max() > 1e-2 * np.abs(still).max()
    table = ht.replay(trace, "expected_attention", 6)
    assert (table.approximation_ratio <= 1).all()


@pytest.mark.parametrize("family", ["cohere", "smollm3", "llama"])
def test_other_embeddings_are_refused_by_name(family, tmp_path):
    with pytest.raises(BadArgument, match=f"family {family}"):
        ht.replay(record(family, tmp_path), "expected_attention", 6)
