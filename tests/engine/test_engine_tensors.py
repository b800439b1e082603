"""Rotary embedding taken out of what real architectures record, and put in again by slot."""

import numpy as np
import pytest
from recorder_models import tokens
from small_traces import trace_with_keys

import h2o_theory as ht
from h2o_theory.engine.slots import slot_measures
from h2o_theory.engine.tensors import head_tensors
from h2o_theory.errors import BadArgument
from h2o_theory.families import HALVES
from h2o_theory.policies import make_policy
from h2o_theory.recorder.tiny import tiny_model
from h2o_theory.testing import schedule_of

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


def measures_by_matrices(trace, kv_head, evicted_at, theta):
    """The same by explicit rotation matrices, row by row, head by head."""
    q, k = trace.queries(0, kv_head), trace.keys(0, kv_head)
    v, full, width = trace.values(0, kv_head), trace.rows(0, kv_head), k.shape[1]

    def turn(angle):
        matrix, half = np.zeros((width, width)), width // 2
        for f in range(half):
            c, s = np.cos(angle * theta ** (-f / half)), np.sin(angle * theta ** (-f / half))
            matrix[[f, f + half], [f, f + half]] = c
            matrix[f, f + half], matrix[f + half, f] = -s, s
        return matrix

    errors, divergences = [], []
    for g in range(len(q)):
        for t in range(trace.tokens):
            seen = [j for j in range(t + 1) if evicted_at[j] >= t]
            query = turn(len(seen) - 1 - t) @ q[g, t]
            keys = [turn(i - j) @ k[j] for i, j in enumerate(seen)]
            weights = np.exp([trace.layer(0).scaling * query @ key for key in keys])
            weights /= weights.sum()
            output = full[g, t] @ v
            errors.append(np.linalg.norm(weights @ v[seen] - output) / np.linalg.norm(output))
            divergences.append((weights * np.log(weights / full[g, t, seen])).sum())
    return np.mean(errors), np.mean(divergences)


def test_slot_positions_equal_explicit_rotations():
    trace = trace_with_keys(layers=1, tokens=24, rope={"rope_theta": 30.0})
    for name in ("sink", "h2o", "random"):
        schedule = schedule_of(make_policy(name), trace.rows(0, 1), 7)
        got = slot_measures(trace, 0, 1, schedule)
        assert np.allclose(got, measures_by_matrices(trace, 1, schedule, 30.0), rtol=1e-9)


def test_a_window_without_holes_is_the_same_by_slot():
    """Its distances do not change, so neither do its rows; those of a sink to the window do."""
    trace = trace_with_keys(layers=1, tokens=40, rope={"rope_theta": 30.0})
    table = ht.replay(trace, "recent,sink", 9)
    for cell in table.itertuples():
        rows = trace.rows(0, cell.kv_head)
        got = slot_measures(trace, 0, cell.kv_head, schedule_of(make_policy(cell.policy), rows, 9))
        same = np.isclose(got, (cell.output_error, cell.kl), rtol=1e-9)
        assert same.all() if cell.policy == "recent" else not same.any()
    nothing_leaves = np.full(40, 40)
    assert np.allclose(slot_measures(trace, 0, 0, nothing_leaves), 0, atol=1e-9)


def test_rows_of_the_prompt_do_not_count_by_slot():
    trace = trace_with_keys(layers=1, tokens=24, rope={"rope_theta": 30.0})
    schedule = schedule_of(make_policy("sink"), trace.rows(0, 0), 7, prefill=12)
    whole, scored = (slot_measures(trace, 0, 0, schedule, prefill) for prefill in (0, 12))
    assert scored[0] > whole[0] and scored[1] > whole[1]


def test_sinks_by_slot_in_a_replay():
    trace = trace_with_keys(layers=1, tokens=40, rope={"rope_theta": 30.0})
    table = ht.replay(trace, "sink,sink:positions=slot", 9)
    table["places"] = table.parameters.str.extract("positions=(.*)", expand=False)
    table = table.set_index(["places", "kv_head"])
    for kv_head in range(2):
        original, slot = table.loc["original", kv_head], table.loc["slot", kv_head]
        schedule = schedule_of(make_policy("sink"), trace.rows(0, kv_head), 9)
        assert (slot.output_error, slot.kl) == slot_measures(trace, 0, kv_head, schedule)
        assert slot.retained_mass == original.retained_mass
        assert slot.output_error != original.output_error


def test_slots_need_a_rotary_embedding_and_what_it_turned():
    with pytest.raises(BadArgument, match="rotary embedding"):
        ht.replay(trace_with_keys(layers=1), "sink:positions=slot", 9)
    rows = trace_with_keys(layers=1).rows(0, 0)[None]
    with pytest.raises(BadArgument, match="unrotated and keys and values"):
        ht.replay(ht.Trace.from_attention(rows), "sink:positions=slot", 9)
