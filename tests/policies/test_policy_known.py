"""Policies whose schedule is known beforehand, one of them from a file."""

import dataclasses

import numpy as np
import pytest
from safetensors.numpy import save_file
from small_traces import small_trace

import h2o_theory as ht
from h2o_theory.errors import BadArgument, BadBudget
from h2o_theory.policies import KnownSchedule, available, make_policy

TOKENS = 30


@pytest.fixture
def trace():
    return small_trace(tokens=TOKENS)


def saved(found, path):
    arrays = {f"{layer}.{head}": steps for (layer, head), steps in found.items()}
    (np.savez if path.suffix == ".npz" else lambda p, **a: save_file(a, p))(path, **arrays)
    return path


def test_what_is_known_beforehand_says_so():
    known = {name for name, cls in available().items() if issubclass(cls, KnownSchedule)}
    assert known == {"full", "optimum", "schedule"}
    assert not make_policy("full").follows_budget and make_policy("h2o").follows_budget
    assert make_policy("optimum").needs_optimum and not make_policy("schedule").needs_optimum


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("prefill", [0, 9])
def test_a_saved_schedule_is_worth_what_the_policy_was(trace, tmp_path, suffix, prefill):
    found = ht.schedules(trace, "h2o", 7, prefill=prefill)
    path = saved(found, tmp_path / f"h2o{suffix}")
    table = ht.replay(trace, [f"schedule:file={path}", "h2o"], 7, prefill=prefill)
    again, own = (table[table.policy.str.startswith(name)] for name in ("schedule", "h2o"))
    for column in ("retained_mass", "approximation_ratio", "hit_rate", "realised_budget_max"):
        assert again[column].tolist() == own[column].tolist()
    for head, steps in ht.schedules(trace, f"schedule:file={path}", 7, prefill=prefill).items():
        assert steps.tolist() == found[head].tolist()


def damage(found, kind):
    head = (1, 0)
    if kind == "missing head":
        del found[head]
    elif kind == "wrong length":
        found[head] = found[head][:-1]
    elif kind == "not whole":
        found[head] = found[head].astype(float)
    elif kind == "before arrival":
        found[head][5] = 4
    else:
        found[head][:] = TOKENS


@pytest.mark.parametrize(
    "kind, error, says",
    [
        ("missing head", BadArgument, "must hold an array '1.0'"),
        ("wrong length", BadArgument, "array of 30 integers"),
        ("not whole", BadArgument, "array of 30 integers"),
        ("before arrival", BadArgument, "before it arrives.*step 4 for token 5"),
        ("over budget", BadBudget, "at most 7 entries.*8 in row 7"),
    ],
)
def test_a_schedule_that_does_not_fit_is_refused(trace, tmp_path, kind, error, says):
    found = ht.schedules(trace, "h2o", 7)
    damage(found, kind)
    path = saved(found, tmp_path / "found.npz")
    with pytest.raises(error, match=says):
        ht.replay(trace, f"schedule:file={path}", 7)


def test_a_file_that_cannot_be_read_is_named(trace, tmp_path):
    (tmp_path / "text.npz").write_text("no archive")
    for name, says in (("none.npz", "none.npz"), ("text.npz", "text.npz"), ("", "file must name")):
        file = f":file={tmp_path / name}" if name else ""
        with pytest.raises(BadArgument, match=says):
            ht.replay(trace, f"schedule{file}", 7)


def test_a_schedule_written_anew_is_read_anew(trace, tmp_path):
    path = tmp_path / "found.npz"
    masses = []
    for policy in ("h2o", "recent"):
        saved(ht.schedules(trace, policy, 7), path)
        masses.append(ht.replay(trace, f"schedule:file={path}", 7).retained_mass.tolist())
    assert masses[0] != masses[1]


def test_what_is_known_is_frozen():
    for name in ("full", "optimum", "schedule"):
        assert dataclasses.is_dataclass(make_policy(name)) and hash(make_policy(name))
