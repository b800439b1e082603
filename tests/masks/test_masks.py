"""Masks: each against a plain reference written from its rule, and their measures."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import reference

import h2o_theory as ht
from h2o_theory.cli import main
from h2o_theory.engine.rows import Block
from h2o_theory.masks import available_masks, make_mask, parse_masks, replay_masks
from h2o_theory.masks.base import keep_largest
from h2o_theory.masks.run import MaskRun
from h2o_theory.trace import Trace

TOKENS, GROUP, DIM = 40, 2, 6


def made(seed, tokens=TOKENS, tied=False):
    """Rows [G, T, T], queries and keys; tied: few distinct logits."""
    rng = np.random.default_rng(seed)
    queries, keys = rng.normal(size=(GROUP, tokens, DIM)), rng.normal(size=(tokens, DIM))
    if tied:
        queries, keys = np.sign(queries), np.sign(keys)
    interval = np.zeros(tokens, dtype=int), np.arange(1, tokens + 1)
    rows = ht.attention.attention_rows(queries, keys, *interval, 0.5)
    return rows, queries, keys


def largest(scores, count):
    """Positions of the largest of ``{position: score}``, the newer among equals."""
    return set(sorted(scores, key=lambda j: (scores[j], j))[::-1][: max(count, 0)])


def strided(t, k, mean, queries, keys):
    window = max(k // 2, 1)
    stride = next(s for s in range(1, TOKENS + 1) if window + (TOKENS - 1) // s <= k)
    teeth = k - window
    return {j for j in range(t + 1) if t - j < window or (teeth and (t - j) % stride == 0)}


def fixed(t, k, mean, queries, keys):
    length = max(k // 2, 1)
    start = t // length * length
    own = set(range(start, t + 1))
    summaries = [j for j in range(start) if j % length >= length - 1][::-1]
    return own | set(summaries[: k - length])


def topk(t, k, mean, queries, keys):
    return {t} | largest({j: mean[t, j] for j in range(t)}, k - 1)


def quest(t, k, mean, queries, keys, page=4):
    own = t // page
    bounds = {}
    for p in range(own):
        low = keys[p * page : (p + 1) * page].min(axis=0)
        high = keys[p * page : (p + 1) * page].max(axis=0)
        each = [np.maximum(q * low, q * high).sum() for q in queries[:, t]]
        bounds[p] = round(float(np.mean(each)), 9)
    pages = largest(bounds, k // page - 1) | {own}
    return {j for j in range(t + 1) if j // page in pages}


def double_sparsity(t, k, mean, queries, keys, channels=2, calibration=8):
    first = slice(0, calibration)
    weight = np.abs(queries[:, first]).sum(axis=(0, 1)) * np.abs(keys[first]).sum(axis=0)
    use = np.argsort(-weight, kind="stable")[:channels] if t >= calibration else np.arange(DIM)
    query = queries[:, t].mean(axis=0)[use]
    return {t} | largest({j: round(float(query @ keys[j, use]), 9) for j in range(t)}, k - 1)


def hip(t, k, mean, queries, keys, block=2, n_sink=1, recent=0.25):
    window = max(int(recent * k), 1)
    sinks = min(n_sink, k - window - block)
    count = (k - window - sinks) // block
    between = max(t - window + 1 - sinks, 0)
    query = queries[:, t].mean(axis=0)
    edges = [(sinks + i * between // count, sinks + (i + 1) * between // count)
             for i in range(count)]  # fmt: skip
    while max(high - low for low, high in edges) > block:
        halves = []
        for low, high in edges:
            halves += [(low, (low + high) // 2), ((low + high) // 2, high)]
        spoken = {
            i: round(float(query @ keys[(low + high) // 2]), 9) if high > low else -np.inf
            for i, (low, high) in enumerate(halves)
        }
        edges = [halves[i] for i in sorted(largest(spoken, count))]
    seen = {j for low, high in edges for j in range(low, high)}
    return seen | {j for j in range(t + 1) if j < sinks or t - j < window}


RULES = {
    "strided": (strided, [1, 2, 5, 12, 40]),
    "fixed": (fixed, [1, 2, 5, 12, 40]),
    "topk": (topk, [1, 2, 5, 12, 40]),
    "quest:page=4": (quest, [4, 9, 12, 40]),
    "double_sparsity:channels=2,calibration=8": (double_sparsity, [1, 2, 5, 12, 40]),
    "hip:block=2,n_sink=1": (hip, [3, 5, 12, 40]),
}


def released_h2o(rows, k, prefill=0, recent=0.5, sinks=None, full=None):
    """Sets of the released masking code: after each row a mask of the next, m + 1 places long.

    It masks from ``full`` entries on; the code's own number is k + 1.
    """
    hb = min(int((1 - recent) * k), k - 1)
    rb, full = k - hb, k if full is None else full
    score, following, sets = [0.0] * rows.shape[1], {0}, []
    for t in range(rows.shape[1]):
        m = t + 1
        seen = set(range(m)) if t < prefill else following
        sets.append(seen)
        for g in range(len(rows)):
            mass = 0.0 if sinks is None else sinks[g, t]
            mass = 1.0 if t < prefill else mass + sum(rows[g, t, j] for j in sorted(seen))
            for j in seen:
                score[j] += rows[g, t, j] / mass / len(rows)
        following = set(range(m + 1))
        if m >= max(full, prefill):
            heavy = largest({j: score[j] for j in range(m - rb)}, hb)
            following = heavy | set(range(m + 1 - rb, m + 1))
            for j in range(m - rb):
                score[j] = score[j] if j in heavy else 0.0
    return sets


def visible(mask, budget, rows, queries, keys, block=TOKENS, prefill=0, sinks=None):
    sinks = np.zeros(rows.shape[:2]) if sinks is None else sinks
    extra = {"queries": queries, "keys": keys, "scaling": 1.0} if mask.needs == "qk" else {}
    run, parts = MaskRun(mask, budget, rows.shape[1], prefill), []
    for start in range(0, rows.shape[1], block):
        piece = rows[:, start : start + block]
        made = Block(start, piece, piece.mean(axis=0), sinks[:, start : start + block])
        parts.append(run.visible(made, **extra))
    return np.concatenate(parts)


def sets_of(seen):
    return [set(np.flatnonzero(row)) for row in seen]


def test_every_mask_has_a_reference():
    assert {name.partition(":")[0] for name in RULES} | {"h2o_hf"} == set(available_masks())


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("tied", [False, True])
def test_masks_show_what_their_rule_says(name, tied):
    rule, budgets = RULES[name]
    rows, queries, keys = made(3, tied=tied)
    mean = rows.mean(axis=0)
    for budget in budgets:
        seen = visible(make_mask(name), budget, rows, queries, keys, block=7)
        for t in range(TOKENS):
            expected = rule(t, budget, mean, queries, keys)
            assert set(np.flatnonzero(seen[t])) == expected, (name, budget, t)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("prefill", [0, 1, 7, 12, 23, TOKENS - 1])
def test_h2o_as_the_released_code_masks_it(tied, prefill):
    rng = np.random.default_rng(8)
    rows = made(3, tied=True)[0] if tied else reference.softmax_rows(rng, GROUP, TOKENS)
    sinks = rng.uniform(0, 0.5, size=(GROUP, TOKENS))
    for budget, recent in ((1, 0.5), (2, 0.5), (7, 0.25), (12, 0.5), (12, 1.0), (39, 0.5)):
        mask = make_mask(f"h2o_hf:recent={recent}")
        seen = visible(mask, budget, rows, None, None, block=7, prefill=prefill)
        expected = released_h2o(rows, budget, prefill, recent)
        assert sets_of(seen) == expected, (budget, recent)
        if prefill > budget:  # as the code has it, which masks one row later after short prompts
            assert expected == released_h2o(rows, budget, prefill, recent, full=budget + 1)
        assert (seen[max(prefill, budget) :].sum(axis=1) == budget).all()
        less = rows * (1 - sinks)[:, :, None]
        seen = visible(mask, budget, less, None, None, prefill=prefill, sinks=sinks)
        assert sets_of(seen) == released_h2o(less, budget, prefill, recent, sinks)


def test_the_code_shows_one_key_too_many_after_a_short_prompt():
    rows = made(3)[0]
    sizes = [len(seen) for seen in released_h2o(rows, 9, 5, full=10)]
    assert sizes == [min(t + 1, 9) + (t == 9) for t in range(TOKENS)]


@pytest.mark.parametrize("zeros", [False, True])
def test_h2o_hides_for_one_row_or_for_good(zeros):
    make = reference.dyadic_rows if zeros else reference.softmax_rows
    rows = make(np.random.default_rng(4), GROUP, TOKENS)
    seen = visible(make_mask("h2o_hf"), 8, rows, None, None)
    back = 0
    for j in range(TOKENS):
        returned = np.flatnonzero(seen[j + 1 :, j] & ~seen[j:-1, j]) + 1
        # Out of sight in the row that follows its last in the window, and in sight a row later.
        assert returned.tolist() in ([], [5]) and seen[j : j + 4, j].all()
        back += len(returned)
    assert back > 0 or zeros  # where all keys get about the same, the first ones win
    for block in (1, 7, TOKENS):
        assert (visible(make_mask("h2o_hf"), 8, rows, None, None, block) == seen).all()


@pytest.mark.parametrize("tokens", [1, 2, 9])
def test_h2o_of_few_tokens(tokens):
    rows = made(2, tokens)[0]
    for budget in (tokens, tokens + 1, 3 * tokens):
        seen = visible(make_mask("h2o_hf"), budget, rows, None, None)
        assert (seen == np.tri(tokens, dtype=bool)).all()
    alone = visible(make_mask("h2o_hf"), 1, rows, None, None)
    assert (alone == np.eye(tokens, dtype=bool)).all()


@pytest.mark.parametrize("name", [*RULES, "h2o_hf"])
def test_masks_keep_the_contract(name):
    """Own key, causality, budget, and no look at later rows."""
    mask = make_mask(name)
    mask = mask if name == "h2o_hf" else replace(mask, heavy=0.4)
    rows, queries, keys = made(5)
    seen = visible(mask, 15, rows, queries, keys)
    assert seen.diagonal().all() and not np.triu(seen, 1).any() and seen.sum(axis=1).max() <= 15
    cut = 22
    other = made(6)
    for mine, theirs, axis in zip((rows, queries, keys), other, (1, 1, 0), strict=True):
        later = [slice(None)] * mine.ndim
        later[axis] = slice(cut, None)
        mine[tuple(later)] = theirs[tuple(later)]
    rows[:, cut:] = np.tril(rows[:, cut:], cut)
    assert (visible(mask, 15, rows, queries, keys)[:cut] == seen[:cut]).all()
    prompt = visible(mask, 15, *made(5), prefill=30)
    assert (prompt[:30] == np.tri(30, TOKENS, dtype=bool)).all()
    assert prompt[30:].sum(axis=1).max() <= 15


def test_heavy_hitters_join_the_pattern():
    rows, queries, keys = made(7)
    mean = rows.mean(axis=0)
    seen = visible(make_mask("fixed:heavy=0.29"), 11, rows, queries, keys, block=9)
    for t in range(TOKENS):
        pattern = fixed(t, 8, mean, queries, keys)
        totals = {j: mean[:t, j].sum() for j in range(t + 1) if j not in pattern}
        assert set(np.flatnonzero(seen[t])) == pattern | largest(totals, 3)


def test_equal_scores_keep_the_newer():
    allowed = np.array([[True, True, True, False]])
    assert keep_largest(np.zeros((1, 4)), allowed, 2).tolist() == [[False, True, True, False]]
    assert not keep_largest(np.zeros((1, 4)), allowed, 0).any()
    assert keep_largest(np.zeros((1, 4)), allowed, 9).tolist() == allowed.tolist()


@pytest.fixture(scope="module")
def trace():
    rng = np.random.default_rng(1)
    rows = np.stack([reference.softmax_rows(rng, 4, TOKENS) for _ in range(2)])
    return Trace.from_attention(
        rows, kv_heads=2, values=rng.normal(size=(2, 2, TOKENS, 5)), model={"id": "made-up"}
    )


@pytest.mark.parametrize("prefill", [0, 11])
def test_measures_the_long_way(trace, prefill):
    masks = {mask.name: mask for mask in parse_masks("strided:heavy=0.5,topk,h2o_hf")}
    table = replay_masks(trace, masks.values(), [6, TOKENS], prefill=prefill, layers=[1])
    assert set(table["mask"]) == set(masks)
    for row in table.itertuples():
        rows, values = trace.rows(1, row.kv_head), trace.values(1, row.kv_head)
        seen = visible(masks[row.mask], row.budget_tokens, rows, None, None, prefill=prefill)
        masses, errors, back, left = [], [], [], set()
        for t in range(prefill, TOKENS):
            keys = np.flatnonzero(seen[t])
            back.append(len(left & set(keys)))
            left |= set(range(t + 1)) - set(keys)
            for g in range(2):
                mass = rows[g, t, keys].sum()
                full = rows[g, t] @ values
                kept = rows[g, t, keys] @ values[keys] / mass
                masses.append(mass)
                errors.append(np.linalg.norm(kept - full) / np.linalg.norm(full))
        assert row.retained_mass == pytest.approx(np.mean(masses), abs=1e-12)
        assert row.kl == pytest.approx(-np.mean(np.log(masses)), abs=1e-12)
        assert row.output_error == pytest.approx(np.mean(errors), abs=1e-9)
        assert row.readmitted == pytest.approx(np.mean(back))
        assert row.keys_seen_max == seen[prefill:].sum(axis=1).max()
        assert row.retained_mass <= row.topk_mass + 1e-9
        if row.budget_tokens == TOKENS and row.mask != "strided":
            assert row.retained_mass == pytest.approx(1) and row.readmitted == 0


def test_what_h2o_hides_comes_back(trace):
    assert (replay_masks(trace, "h2o_hf", [8, 12]).readmitted > 0).all()


def test_committed_trace_agrees_with_the_bound():
    trace = ht.open_trace(Path(__file__).parents[2] / "traces" / "smollm2-135m-512")
    table = replay_masks(trace, "topk,quest,fixed", "10%", layers=[10], kv_heads=[0])
    ratio = table.set_index("mask").topk_bound_ratio
    assert 0.99 < ratio["topk"] <= 1 and 0 < ratio["fixed"] < ratio["quest"] < ratio["topk"]
    assert table.set_index("mask").readmitted["fixed"] == 0


BAD = {
    "name": (lambda t: replay_masks(t, "stride", 4), ht.errors.BadArgument, "strided"),
    "object": (lambda t: parse_masks([3]), ht.errors.BadArgument, "3"),
    "none": (lambda t: parse_masks([]), ht.errors.BadArgument, "topk"),
    "parameter": (lambda t: replay_masks(t, "quest:page=0", 4), ht.errors.BadArgument, "page"),
    "heavy": (lambda t: replay_masks(t, "topk:heavy=2", 4), ht.errors.BadArgument, "heavy"),
    "no window": (
        lambda t: replay_masks(t, "h2o_hf:recent=0", 4),
        ht.errors.BadArgument,
        "known bug",
    ),
    "twice heavy": (lambda t: make_mask("h2o_hf:heavy=0.5"), ht.errors.BadArgument, "recent=..."),
    "all heavy": (lambda t: replay_masks(t, "topk:heavy=1", 4), ht.errors.BadBudget, "pattern"),
    "qk": (lambda t: replay_masks(t, "quest", 20), ht.errors.BadArgument, "--store qkv"),
    "layer": (lambda t: replay_masks(t, "topk", 4, layers=[7]), ht.errors.OutOfRange, "layer 7"),
    "prefill": (lambda t: replay_masks(t, "topk", 4, prefill=40), ht.errors.OutOfRange, "39"),
    "workers": (lambda t: replay_masks(t, "topk", 4, workers=0), ht.errors.BadArgument, "worker"),
}


@pytest.mark.parametrize("case", BAD)
def test_refusals(trace, case):
    call, error, word = BAD[case]
    with pytest.raises(error, match=word):
        call(trace)


def test_page_larger_than_the_budget():
    rows, queries, keys = made(1)
    with pytest.raises(ht.errors.BadBudget, match="page=16"):
        visible(make_mask("quest"), 9, rows, queries, keys)


def test_command(trace, tmp_path, capsys):
    path, out = str(trace.save(tmp_path / "small.trace")), tmp_path / "masks.csv"
    assert main(["masks", path, "--mask", "topk,strided", "--budget", "5", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "strided" in printed and out.is_file()
    assert main(["masks", path, "--budget", "5"]) == 0
    shown = capsys.readouterr()
    assert "left out: double_sparsity, hip, quest" in shown.err and "topk" in shown.out
    assert main(["masks", path, "--mask", "topk", "--budget", "5", "--json"]) == 0
    assert {row["mask"] for row in json.loads(capsys.readouterr().out)} == {"topk"}
    assert main(["masks", path, "--mask", "nope"]) == 2
    assert "UnknownName" in capsys.readouterr().err
    assert main(["ls", "masks"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in available_masks())
