"""A recording of a model, killed at moments throughout: resumed, it is what it would have been."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from recorder_models import leftovers, traced_rows

from h2o_theory.errors import RecordingRefused
from h2o_theory.recorder import record
from h2o_theory.recorder.tiny import tiny_model
from h2o_theory.trace import open_trace, validate

SCRIPT = Path(__file__).parents[1] / "support" / "crashing_recorder.py"


@pytest.fixture(scope="module")
def wreckage(tmp_path_factory):
    """(folder, what each killed and resumed recording found)."""
    folder = tmp_path_factory.mktemp("killed")
    command = [sys.executable, str(SCRIPT), str(folder), "11"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return folder, json.loads(done.stdout)


def test_killed_recordings_are_plainly_unfinished(wreckage):
    _, found = wreckage
    before = [moment["before"] for moment in found]
    assert len(before) > 6 and set(before) <= {"TraceNotFound", "UnfinishedTrace", "trace"}
    assert before.count("UnfinishedTrace") > 5


def test_resuming_keeps_every_segment_that_was_on_disk(wreckage):
    folder, found = wreckage
    kept = [moment["kept"] for moment in found if moment["kept"] is not None]
    segments = validate(open_trace(folder / "whole")).segments
    assert kept == sorted(kept) and kept[0] == 0 and kept[-1] >= segments - 1


def test_a_resumed_recording_is_the_uninterrupted_one_bit_for_bit(wreckage):
    folder, found = wreckage
    whole = {file.name: file.read_bytes() for file in (folder / "whole").iterdir()}
    traces = sorted(folder.glob("*/t"))
    assert len(traces) == len(found) + 1
    for trace in traces:
        assert {file.name: file.read_bytes() for file in trace.iterdir()} == whole
        assert leftovers(trace.parent) in (["kept", "t"], ["t"])
    assert traced_rows(open_trace(folder / "whole"), 1).shape == (4, 28, 28)


def test_folders_made_for_a_refused_recording_are_removed(tmp_path):
    (tmp_path / "old").mkdir()
    for place in ("new/deep/t", "old/deep/t"):
        with pytest.raises(RecordingRefused), record(tiny_model("opt"), tmp_path / place):
            assert (tmp_path / place).with_name("t.unfinished").is_dir()
    assert leftovers(tmp_path) == ["old"] and leftovers(tmp_path / "old") == []
