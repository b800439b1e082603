"""Transforms of keys and values: their rounding, their bits, and the output error the long way."""

import json
import math

import numpy as np
import pytest

import h2o_theory as ht
from h2o_theory.cli import main
from h2o_theory.testing import schedule_of
from h2o_theory.transforms import (
    LESS,
    available_transforms,
    make_transform,
    parse_transforms,
    quantise,
    replay_transforms,
)
from h2o_theory.transforms.view import TransformedTrace


@pytest.fixture(scope="module")
def trace(committed_trace):
    return ht.open_trace(committed_trace)


HEAD = {"layers": [10], "kv_heads": [1]}


def slowly_quantised(numbers, bits, group):
    """One row, number by number."""
    result = []
    for start in range(0, len(numbers), group):
        part = [float(x) for x in numbers[start : start + group]]
        low = float(np.float16(min(part)))
        step = float(np.float16((max(part) - low) / (2**bits - 1)))
        for x in part:
            level = round((x - low) / step) if step > 0 else 0
            result.append(low + step * min(max(level, 0), 2**bits - 1))
    return result


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("group", [1, 5, 8])
def test_quantise(bits, group):
    rng = np.random.default_rng(bits)
    numbers = rng.normal(size=(3, 13))
    numbers[1] = 2.0
    expected = np.array([slowly_quantised(row, bits, group) for row in numbers])
    assert np.allclose(quantise(numbers, bits, 1, group), expected, atol=1e-12)
    assert np.allclose(quantise(numbers.T, bits, 0, group), expected.T, atol=1e-12)


def test_more_bits_are_closer():
    numbers = np.random.default_rng(0).normal(size=(40, 64))
    errors = [np.abs(quantise(numbers, bits, 1, 32) - numbers).max() for bits in (2, 4, 8)]
    assert errors[0] > 4 * errors[1] > 16 * errors[2]


@pytest.mark.parametrize("name", ["exact", "kivi:bits=2", "kivi:bits=4,group=16", "think"])
def test_bytes_never_exceed_the_budget_and_buy_what_they_can(name):
    transform = make_transform(name)
    costs = [transform.cache_bits(k, 64, 64) for k in range(2000)]
    assert all(later >= earlier for earlier, later in zip(costs, costs[1:], strict=False))
    for bits in (0, 2047, 2048, 50_000, 300_000):
        bought = transform.entries_within(bits, 64, 64)
        expected = max((k for k in range(2000) if costs[k] <= bits), default=0)
        assert bought == (expected if costs[0] <= bits else 0)


def test_bits_by_hand():
    assert make_transform("exact").cache_bits(3, 64, 64) == 3 * 128 * 16
    # 2 bits and 32 bits of scale and minimum for 32 numbers: 3 bits each, beyond 32 exact entries.
    assert make_transform("kivi:bits=2").cache_bits(40, 64, 64) == 32 * 2048 + 8 * 128 * 3
    # 25 of 64 channels dropped beyond 32 whole entries; 64 bits say which.
    assert make_transform("think").cache_bits(40, 64, 64) == 16 * (32 * 128 + 8 * 103) + 64
    assert LESS(kernel=elu, rank=4).cache_bits(10, 64, 64) == 16 * (10 * 128 + 4 * 65)


def elu(queries, keys):
    """Four positive features."""
    return tuple(np.exp(np.minimum(part[..., :4], 2.0)) for part in (queries, keys))


def test_rows_come_from_what_is_stored(trace):
    view = TransformedTrace(trace, make_transform("kivi:bits=2,residual=64"), prefill=40)
    keys = trace.keys(10, 1).astype(float)
    rounded = quantise(keys, 2, 0, 32)
    queries = trace.queries(10, 1).astype(float)
    rows = view.rows(10, 1, 30, 140)
    for t in (30, 39, 40, 63, 64, 127, 128, 139):
        flushed = t // 64 * 64 if t >= 40 else 0
        held = np.concatenate([rounded[:flushed], keys[flushed : t + 1]])
        logits = queries[:, t] @ held.T * trace.layer(10).scaling
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        expected = weights / weights.sum(axis=1, keepdims=True)
        assert np.allclose(rows[:, t - 30, : t + 1], expected, atol=1e-12)
        assert not rows[:, t - 30, t + 1 :].any()


def test_exact_changes_nothing(trace):
    view = TransformedTrace(trace, make_transform("exact"), prefill=0)
    assert np.allclose(view.rows(10, 1), trace.rows(10, 1), atol=1e-14)
    table = replay_transforms(trace, "h2o", "exact", 51, **HEAD)
    replayed = ht.replay(trace, "h2o", 51, **HEAD)
    assert table.budget_tokens.tolist() == [51]
    assert table.output_error[0] == pytest.approx(replayed.output_error[0], abs=1e-9)
    assert table.retained_mass[0] == pytest.approx(replayed.retained_mass[0], abs=1e-12)


@pytest.mark.parametrize("prefill", [0, 50])
@pytest.mark.parametrize("name", ["kivi:bits=2", "think:drop=0.5,window=16"])
def test_output_error_the_long_way(trace, name, prefill):
    transform = make_transform(name)
    table = replay_transforms(trace, "h2o", transform, "10%", prefill=prefill, **HEAD)
    row = table.iloc[0]
    assert transform.cache_bits(row.budget_tokens, 64, 64) <= 8 * row.budget_bytes
    assert row.budget_bytes == 51 * 128 * 2 and row.budget_tokens > 51
    view = TransformedTrace(trace, transform, prefill)
    stored, rows = view.stored(10, 1), view.rows(10, 1)
    policy = ht.policies.make_policy("h2o")
    evicted_at = schedule_of(policy, rows, int(row.budget_tokens), prefill=prefill)
    full, values = trace.rows(10, 1), trace.values(10, 1).astype(float)
    errors, masses = [], []
    for t in range(prefill, trace.tokens):
        seen = [j for j in range(t + 1) if evicted_at[j] >= t]
        masses.append(full[:, t, seen].sum(axis=1).mean())
        held = np.array([values[j] if j >= stored.exact_values[t] else stored.values[j]
                         for j in seen])  # fmt: skip
        for g in range(3):
            weights = rows[g, t, seen] / rows[g, t, seen].sum()
            expected = full[g, t] @ values
            errors.append(np.linalg.norm(weights @ held - expected) / np.linalg.norm(expected))
    assert row.output_error == pytest.approx(np.mean(errors), abs=1e-9)
    assert row.retained_mass == pytest.approx(np.mean(masses), abs=1e-9)


def test_think_drops_the_channels_of_least_weight(trace):
    transform = make_transform("think:drop=0.25,window=8")
    queries = trace.queries(10, 1).astype(float)
    keys, values = trace.keys(10, 1).astype(float), trace.values(10, 1).astype(float)
    stored = transform.stored(queries, keys, values, 0)
    score = [(queries[:, :8, c] ** 2).sum() * (keys[:8, c] ** 2).sum() for c in range(64)]
    assert not stored.keys[:, np.argsort(score)[:16]].any()
    kept = np.argsort(score)[16:]
    assert (stored.keys[:, kept] == keys[:, kept]).all()
    assert stored.exact_keys.tolist()[:10] == [0] * 8 + [1, 2]


def test_less_is_its_recurrence(trace):
    """State and numerator and denominator, step by step, as LESS states them."""
    transform = LESS(kernel=elu, rank=4)
    table = replay_transforms(trace, "recent", transform, 40, **HEAD)
    kept = int(table.budget_tokens[0])
    assert kept == 40 - math.ceil(4 * 65 / 128)
    scaling = trace.layer(10).scaling
    queries, keys = trace.queries(10, 1).astype(float) * scaling, trace.keys(10, 1).astype(float)
    values, full = trace.values(10, 1).astype(float), trace.rows(10, 1)
    on_queries, on_keys = elu(queries, keys)
    state, norm, errors = np.zeros((4, 64)), np.zeros(4), []
    for t in range(trace.tokens):
        if t - kept >= 0:
            state += np.outer(on_keys[t - kept], values[t - kept])
            norm += on_keys[t - kept]
        seen = slice(max(t - kept + 1, 0), t + 1)
        for g in range(3):
            weights = np.exp(queries[g, t] @ keys[seen].T)
            top = weights @ values[seen] + on_queries[g, t] @ state
            output = top / (weights.sum() + on_queries[g, t] @ norm)
            expected = full[g, t] @ values
            errors.append(np.linalg.norm(output - expected) / np.linalg.norm(expected))
    assert table.output_error[0] == pytest.approx(np.mean(errors), rel=1e-9)


@pytest.mark.parametrize("name", ["kivi:bits=2", "think:window=16"])
def test_nothing_later_is_looked_at(name):
    rng = np.random.default_rng(2)
    parts = [rng.normal(size=shape) for shape in ((2, 90, 8), (90, 8), (90, 8))]
    transform, cut = make_transform(name), 70
    before = transform.stored(*parts, 20)
    other = [part.copy() for part in parts]
    other[0][:, cut:], other[1][cut:], other[2][cut:] = 5.0, 6.0, 7.0
    after = transform.stored(*other, 20)
    for t in range(cut):
        keys, values = before.exact_keys[t], before.exact_values[t]
        assert keys == after.exact_keys[t] and values == after.exact_values[t]
        assert (before.keys[:keys] == after.keys[:keys]).all()
        assert (before.values[:values] == after.values[:values]).all()


BAD = {
    "name": (lambda t: replay_transforms(t, "h2o", "kivy", 20), "kivi"),
    "object": (lambda t: parse_transforms([1]), "1"),
    "none": (lambda t: parse_transforms(""), "exact"),
    "bits": (lambda t: make_transform("kivi:bits=3"), "2 or 4 or 8"),
    "groups": (lambda t: make_transform("kivi:residual=48"), "multiple of group"),
    "drop": (lambda t: make_transform("think:drop=2"), "drop"),
    "kernel": (lambda t: make_transform("less"), "kernel"),
    "kernel text": (lambda t: make_transform("less:kernel=3"), "kernel"),
    "features": (
        lambda t: replay_transforms(t, "h2o", LESS(kernel=lambda q, k: (q, k)), 40, **HEAD),
        "features",
    ),
    "too small": (
        lambda t: replay_transforms(t, "h2o", LESS(kernel=elu, rank=64), 20, **HEAD),
        "one entry",
    ),
    "prefill": (lambda t: replay_transforms(t, "h2o", "exact", 20, prefill=512), "511"),
    "workers": (lambda t: replay_transforms(t, "h2o", "exact", 20, workers=0), "worker"),
    "layer": (lambda t: replay_transforms(t, "h2o", "exact", 20, layers=[1]), "layer 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_refusals(trace, case):
    call, word = BAD[case]
    with pytest.raises(ht.errors.BadArgument, match=word):
        call(trace)


def test_attention_alone_cannot_be_transformed():
    rows = np.tril(np.ones((1, 1, 5, 5))) / np.arange(1, 6)[:, None]
    with pytest.raises(ht.errors.BadArgument, match="queries and keys"):
        replay_transforms(ht.Trace.from_attention(rows), "h2o", "exact", 3)


def test_command(committed_trace, tmp_path, capsys):
    out = tmp_path / "transforms.csv"
    arguments = ["transforms", str(committed_trace), "--layers", "10", "--budget", "10%"]
    assert main([*arguments, "--policy", "h2o,tova", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "kivi" in printed and "tova" in printed and out.is_file()
    assert main([*arguments, "--transform", "kivi:bits=2", "--policy", "full", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["budget_tokens"] for row in rows} == {512}
    assert main([*arguments, "--transform", "nope"]) == 2
    assert "UnknownName" in capsys.readouterr().err
    assert main(["ls", "transforms"]) == 0
    assert all(name in capsys.readouterr().out for name in available_transforms() if name == "kivi")
