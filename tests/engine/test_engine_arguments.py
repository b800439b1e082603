"""The same choice of heads, prefill and workers is refused in the same way by all that replays."""

import numpy as np
import pytest

import h2o_theory as ht
from h2o_theory.analysis import survey_rows
from h2o_theory.engine.arguments import chosen_heads, thread_count, to_prefill
from h2o_theory.guarantee import measure_guarantee
from h2o_theory.masks import replay_masks
from h2o_theory.trace import Trace
from h2o_theory.transforms import replay_transforms

TOKENS = 12


@pytest.fixture(scope="module")
def trace():
    """Layers 1 and 4 with two kv_heads each; queries, keys and values."""
    rng = np.random.default_rng(0)
    shape = (2, 2, TOKENS, 4)
    rows = np.tril(rng.random((2, 4, TOKENS, TOKENS)) + 0.1)
    rows /= rows.sum(axis=-1, keepdims=True)
    values = rng.normal(size=shape)
    return Trace.from_attention(rows, kv_heads=2, values=values, layers=[1, 4])


WAYS = {
    "replay": lambda trace, **how: ht.replay(trace, "h2o", 4, **how),
    "schedules": lambda trace, **how: ht.schedules(trace, "h2o", 4, **how),
    "certified_optimum": lambda trace, **how: ht.certified_optimum(trace, 4, **how),
    "certified_interval": lambda trace, **how: ht.certified_interval(trace, 4, **how),
    "masks": lambda trace, **how: replay_masks(trace, "topk", 4, **how),
    "transforms": lambda trace, **how: replay_transforms(trace, "h2o", "exact", 4, **how),
    "guarantee": lambda trace, **how: measure_guarantee(trace, "h2o", 4, **how),
    "survey": lambda trace, **how: survey_rows(trace, **how),
}
BAD = {
    "layer": ({"layers": [0]}, ht.errors.OutOfRange),
    "no layer": ({"layers": []}, ht.errors.BadArgument),
    "kv_head": ({"kv_heads": [2]}, ht.errors.OutOfRange),
    "prefill": ({"prefill": TOKENS}, ht.errors.OutOfRange),
    "negative prefill": ({"prefill": -1}, ht.errors.OutOfRange),
    "half a row": ({"prefill": 1.5}, ht.errors.OutOfRange),
    "workers": ({"workers": 0}, ht.errors.BadArgument),
    "half a worker": ({"workers": 1.5}, ht.errors.BadArgument),
    "a number for a list": ({"kv_heads": 1}, ht.errors.BadArgument),
    "text for a list": ({"layers": "14"}, ht.errors.BadArgument),
    "seed below 0": ({"seed": -1}, ht.errors.BadArgument),
    "seed of text": ({"seed": "x"}, ht.errors.BadArgument),
}
NOT_TAKEN = {
    "survey": {"kv_heads", "prefill", "seed"},
    "guarantee": {"workers"},
    "certified_optimum": {"seed"},
    "certified_interval": {"seed"},
    "masks": {"seed"},
}


@pytest.mark.parametrize(
    ("way", "case"),
    [
        (way, case)
        for way in WAYS
        for case, (how, _) in BAD.items()
        if not set(how) & NOT_TAKEN.get(way, set())
    ],
)
def test_refusals(trace, way, case):
    how, error = BAD[case]
    with pytest.raises(error) as caught:
        WAYS[way](trace, **how)
    assert caught.value.where


def test_heads_are_chosen_once_and_in_order(trace):
    assert chosen_heads(trace) == [(1, 0), (1, 1), (4, 0), (4, 1)]
    assert chosen_heads(trace, [4, 1, 4], [1]) == [(4, 1), (1, 1)]


def test_whole_numbers_of_any_kind_are_taken():
    assert to_prefill(np.int64(3), 4) == 3 and thread_count(np.int32(2)) == 2
    assert thread_count(None) >= 1


@pytest.mark.parametrize("budgets", [np.int64(3), np.array([3, 5]), (3, "5"), "3,5"])
def test_budgets_of_any_kind_are_taken(trace, budgets):
    replayed = ht.replay(trace, "recent", budgets, layers=[1], kv_heads=[0])
    bounded = ht.certified_interval(trace, budgets, layers=[1], kv_heads=[0])
    assert replayed.budget_tokens.tolist() == bounded.budget_tokens.tolist()
    assert replayed.budget_tokens.tolist() in ([3], [3, 5])


@pytest.mark.parametrize("budgets", [None, [], np.array([]), True, 2.5, np.float64(2.5)])
def test_what_is_no_budget_is_refused(trace, budgets):
    for function, name in ((ht.replay, "recent"), (replay_masks, "topk")):
        with pytest.raises(ht.errors.BadBudget):
            function(trace, name, budgets)
