"""Each campaign computes a cell anew when anything it is a result of changes, and only then."""

import dataclasses
import importlib
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from recorder_models import tokens
from small_traces import small_trace

from h2o_theory import PlainPolicy, store
from h2o_theory.errors import BadArgument
from h2o_theory.experiments.study import Study, policy_arm
from h2o_theory.live.campaign import run_live
from h2o_theory.policies import make_policy
from h2o_theory.recorder import LoadedModel, record
from h2o_theory.recorder.tiny import tiny_model
from h2o_theory.store import REPLAY_ROOMS
from h2o_theory.sweep import run_sweep
from h2o_theory.trace import open_trace

identity_module = importlib.import_module("h2o_theory.store.identity")

MINE = """
import helper

from h2o_theory import PlainPolicy


class Mine(PlainPolicy):
    name = "mine"

    def __init__(self, weight=1.0):
        self.weight = weight

    def rate(self, t, positions):
        return helper.sign() * self.weight * positions
"""
HELPER = "import deeper\n\n\ndef sign():\n    return deeper.SIGN\n"


TEXT = tokens(24)[0]


class Mix(PlainPolicy):
    """Between the oldest and the last row's least, by ``alpha``."""

    name = "mix"

    def __init__(self, alpha):
        self.alpha = alpha

    def observe(self, t, positions, row):
        self.row = row

    def rate(self, t, positions):
        return self.alpha * self.row + (1 - self.alpha) * positions


class OtherMix(Mix):
    """The same under another class."""


def with_state(policy, **state):
    for name, value in state.items():
        setattr(policy, name, value)
    return policy


@pytest.fixture
def edited_package(tmp_path):
    """A copy of the package's sources in which one room was edited, by the room's name."""

    def edited(room):
        place = tmp_path / f"edited-{room}"
        if place.exists():
            return place
        package = Path(store.__file__).parents[1]
        shutil.copytree(package, place, ignore=shutil.ignore_patterns("*.n*", "*.pyc", "*.pyi"))
        file = place / f"{room}.py" if (place / f"{room}.py").is_file() else place / room
        file = file if file.is_file() else sorted(file.rglob("*.py"))[-1]
        file.write_bytes(file.read_bytes() + b"#")
        return place

    return edited


def other_weights(model):
    """One weight of the model moved by its last bit."""
    weight = next(model.parameters())
    with torch.no_grad():
        bits = weight.view(torch.int32)
        bits[1, 1] ^= 1
    return model


def swapped_rows(model):
    """Two rows of a weight exchanged, so that its sum and norm stay as they are."""
    weight = next(model.parameters())
    with torch.no_grad():
        weight[[1, 2]] = weight[[2, 1]]
    return model


POLICIES = {
    "a shipped policy": lambda: make_policy("h2o"),
    "another": lambda: make_policy("lru"),
    "a parameter": lambda: make_policy("h2o:decay=0.5"),
    "a parameter of other text": lambda: make_policy("h2o:rows=raw"),
    "a part": lambda: make_policy("h2o:n_recent=3"),
    "Mix of 0": lambda: Mix(0.0),
    "Mix of 1": lambda: Mix(1.0),
    "state set later": lambda: with_state(Mix(1.0), extra=2),
    "an array as state": lambda: with_state(Mix(1.0), table=np.arange(5000.0)),
    "another array": lambda: with_state(Mix(1.0), table=np.arange(5000.0) + (np.arange(5000) == 9)),
    "another class": lambda: OtherMix(1.0),
}


def test_policies_are_told_apart_by_all_they_hold():
    found = {name: store.policy_identity(make()) for name, make in POLICIES.items()}
    assert len({tuple(what) for what in found.values()}) == len(found)
    assert found == {name: store.policy_identity(make()) for name, make in POLICIES.items()}


def test_a_users_policy_is_known_by_every_file_it_imports(tmp_path):
    """Each version in a process of its own, as in life; the folder's own place does not matter."""
    import subprocess
    import sys

    code = (
        "import sys; from h2o_theory.policies import make_policy; from h2o_theory import store\n"
        "print(store.policy_identity(make_policy(sys.argv[1] + ':Mine')))"
    )

    def found(name, mine=MINE, helper=HELPER, deeper="SIGN = 1\n"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "mine.py").write_text(mine)
        (folder / "helper.py").write_text(helper)
        (folder / "deeper.py").write_text(deeper)
        command = [sys.executable, "-c", code, str(folder / "mine.py")]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    first = found("a")
    assert found("b") == first
    changed = [
        found("c", mine=MINE + "\n"),
        found("d", helper=HELPER + "\n"),
        found("e", deeper="SIGN = -1\n"),
    ]
    assert len({first, *changed}) == 4


def test_what_cannot_be_compared_is_refused_by_name():
    with pytest.raises(BadArgument, match="pickled"):
        store.policy_identity(with_state(Mix(1.0), rule=lambda row: row))


def test_models_are_told_apart_to_the_last_bit():
    base = tiny_model("llama")
    found = [
        store.model_identity(base),
        store.model_identity(other_weights(tiny_model("llama"))),
        store.model_identity(swapped_rows(tiny_model("llama"))),
        store.model_identity(tiny_model("llama").to(torch.bfloat16)),
        store.model_identity(tiny_model("opt")),
    ]
    assert len(set(found)) == len(found)
    assert store.model_identity(tiny_model("llama")) == found[0]
    assert store.model_identity(other_weights(base)) == found[1], "what is kept notices a change"


LIVE = {
    "weights": {"model": lambda: other_weights(tiny_model("llama"))},
    "rows of a weight exchanged": {"model": lambda: swapped_rows(tiny_model("llama"))},
    "dtype": {"model": lambda: tiny_model("llama").to(torch.bfloat16)},
    "text": {"ids": tokens(24, seed=5)[0]},
    "policy": {"policy": lambda: make_policy("lru")},
    "a parameter": {"policy": lambda: make_policy("h2o:decay=0.5")},
    "budget": {"budget": 9},
    "prefill": {"prefill": 12},
    "positions": {"positions": "slot"},
    "seed": {"seed": 1},
    **{f"code of {room}": {"room": room} for room in store.LIVE_ROOMS},
}


@pytest.mark.parametrize("change", LIVE)
def test_live_computes_anew_what_changed(change, tmp_path, monkeypatch, edited_package):
    """The full cache does not depend on the policy; with another budget it is found as well."""

    def run(model=lambda: tiny_model("llama"), ids=TEXT, room=None, **more):
        policy, budget = more.pop("policy", lambda: make_policy("h2o")), more.pop("budget", 8)
        with monkeypatch.context() as patch:
            if room is not None:
                patch.setattr(identity_module, "PACKAGE", edited_package(room))
            return run_live(model(), [ids], [policy()], [budget], out=tmp_path / "out", **more)

    assert run().skipped == 0 and run().skipped == 2
    found = run(**LIVE[change])
    cells = found.table.set_index("policy_name" if "policy_name" in found.table else "policy")
    kept = int(change in ("policy", "a parameter", "budget"))
    assert found.skipped == kept and (cells["status"] == "done").all()
    assert run(**LIVE[change]).skipped == 2


@dataclasses.dataclass
class Signed(PlainPolicy):
    """An ordinary dataclass, which cannot be hashed."""

    sign: float = 1.0
    name = "signed"

    def rate(self, t, positions):
        return self.sign * positions


def test_a_policy_need_not_be_hashable(tmp_path):
    both = [Signed(), Signed(-1.0)]
    table = run_live(tiny_model("llama"), [TEXT], both, [6], out=tmp_path / "live").table
    assert table["policy"].tolist() == ["full", "signed", "signed:sign=-1.0"]
    assert table["loss"].nunique() == 3
    grid = {"traces": [small_trace()], "policies": both, "budgets": [5], "kv_heads": [0]}
    assert run_sweep(grid, tmp_path / "sweep", workers=1).failed == 0


def test_live_does_not_mistake_one_object_for_another(tmp_path):
    ids, losses = tokens(24)[0], {}
    for alpha in (0.0, 1.0):
        table = run_live(tiny_model("llama"), [ids], [Mix(alpha)], [6], out=tmp_path / "one").table
        alone = tmp_path / str(alpha)
        fresh = run_live(tiny_model("llama"), [ids], [Mix(alpha)], [6], out=alone).table
        assert table["loss"].tolist() == fresh["loss"].tolist()
        losses[alpha] = table["loss"].iloc[-1]
    assert losses[0.0] != losses[1.0]


SWEEP = {
    "trace": {"traces": [small_trace(seed=4)]},
    "policy": {"policies": ["lru"]},
    "a parameter": {"policies": ["h2o:decay=0.5"]},
    "an object": {"policies": [Mix(0.0)]},
    "another object": {"policies": [Mix(1.0)]},
    "budget": {"budgets": [6]},
    "prefill": {"prefill": [3]},
    "seed": {"seeds": [1]},
    "the optimum": {"optimum": False},
    **{f"code of {room}": {"room": room} for room in store.REPLAY_ROOMS},
}


@pytest.mark.parametrize("change", SWEEP)
def test_a_sweep_computes_anew_what_changed(change, tmp_path, monkeypatch, edited_package):
    base = {"traces": [small_trace()], "policies": ["h2o"], "budgets": [5], "kv_heads": [0]}

    def run(room=None, **more):
        with monkeypatch.context() as patch:
            if room is not None:
                patch.setattr(identity_module, "PACKAGE", edited_package(room))
            return run_sweep(base | more, tmp_path / "out", workers=1)

    assert run().skipped == 0 and run().skipped == 2
    found = run(**SWEEP[change])
    assert found.skipped == 0 and found.ran == 2
    assert run(**SWEEP[change]).skipped == 2


STUDY = {
    "weights": {"model": lambda: other_weights(tiny_model("llama"))},
    "text": {"ids": tokens(24, seed=5)[0]},
    "policy": {"arm": lambda: policy_arm("lru", 8, 24)},
    "a parameter": {"arm": lambda: policy_arm("h2o:decay=0.5", 8, 24)},
    "an object": {"arm": lambda: policy_arm(Mix(0.5), 8, 24)},
    "budget": {"arm": lambda: policy_arm("h2o", 9, 24)},
    "positions": {"arm": lambda: policy_arm("h2o", 8, 24, positions="slot")},
    "seed": {"arm": lambda: policy_arm("h2o", 8, 24, seed=1)},
    **{f"code of {room}": {"room": room} for room in (*store.LIVE_ROOMS, "experiments")},
}


@pytest.mark.parametrize("change", STUDY)
def test_an_experiment_computes_anew_what_changed(change, tmp_path, monkeypatch, edited_package):
    def keys(model=lambda: tiny_model("llama"), ids=TEXT, room=None, arm=None):
        with monkeypatch.context() as patch:
            if room is not None:
                patch.setattr(identity_module, "PACKAGE", edited_package(room))
            loaded = LoadedModel(model(), None, "tiny", "tiny", "", "test")
            study = Study(loaded, ids, tmp_path / "out", tokens=24)
            study.cell(0, arm() if arm else policy_arm("h2o", 8, 24))
        return {path.stem for path in (tmp_path / "out" / "cells").rglob("*.safetensors")}

    first = keys()
    assert keys() == first
    assert len(keys(**STUDY[change])) == len(first) + 1


def test_every_room_of_a_result_exists_and_kernels_are_among_them():
    package = Path(store.__file__).parents[1]
    for room in store.LIVE_ROOMS:
        assert (package / room).is_dir() or (package / f"{room}.py").is_file(), room
    assert set(store.REPLAY_ROOMS) < set(store.LIVE_ROOMS) and "kernels" in store.REPLAY_ROOMS


def test_every_result_says_the_code_it_was_made_by(tmp_path, committed_trace):
    """One provenance: what tables, sweeps and traces state of the code is what the store states."""
    from h2o_theory.cli.provenance import provenance as of_trace
    from h2o_theory.store import provenance, versions

    trace = open_trace(committed_trace)
    stated = provenance(["replay"], model="m")
    assert of_trace(trace, ["replay"])["versions"].items() >= versions().items()
    assert stated["versions"] == versions() and stated["command"] == "h2o-theory replay"
    spec = {"traces": [str(committed_trace)], "policies": ["recent"], "budgets": [5], "layers": [0]}
    spec |= {"optimum": False}
    table = pd.read_parquet(run_sweep(spec, tmp_path / "sweep", workers=1).table)
    found = table.attrs["provenance"]
    assert "date" not in found
    assert found["versions"]["h2o-theory"] == versions(*REPLAY_ROOMS)["h2o-theory"]
    model = tiny_model("llama")
    with torch.no_grad(), record(model, tmp_path / "made.trace") as recording:
        model(tokens(5))
    found = open_trace(recording.path).spec.versions
    assert found.items() >= versions("attention", "recorder", "trace").items()
