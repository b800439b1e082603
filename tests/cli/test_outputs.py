"""An output that cannot be written or is taken is found before the work, by every verb."""

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from commands import refused

from h2o_theory.cli import main
from h2o_theory.cli.main import VERBS

VERBS_THAT_WRITE = {
    "demo": [],
    "record": ["absent-model", "--text", "absent.txt"],
    "import": ["absent.npy"],
    "replay": ["absent.trace"],
    "sweep": ["absent.toml"],
    "optimum": ["absent.trace"],
    "guarantee": ["absent.trace"],
    "masks": ["absent.trace"],
    "transforms": ["absent.trace"],
    "analyze": ["absent.trace"],
    "live": ["absent-model", "--text", "absent.txt", "--policy", "h2o", "--budget", "9"],
    "experiment": ["ladder"],
    "report": ["absent.parquet"],
    "check": [],
    "costs": ["--published"],
}
"""Each verb with inputs that are not there: whoever names the output first did not look at them."""

OF_A_FILE = {"replay", "masks", "transforms", "check"}
INPUTS_FIRST = {"record", "import", "report"}
ALREADY = {"analyze", "check"}
"""Verbs that read their inputs first, and those that say that something is there."""


def command(verb, out):
    return [verb, *VERBS_THAT_WRITE[verb], "--html" if verb == "check" else "--out", str(out)]


def test_all_verbs_that_write_are_here():
    assert set(VERBS) - set(VERBS_THAT_WRITE) == {"validate", "info", "ls"}


@pytest.fixture(params=["below a file", "below what takes no files", "full", "read-only"])
def place(request, tmp_path, monkeypatch):
    """A place that cannot be written, whoever runs the tests."""
    if request.param == "below a file":
        (tmp_path / "file").write_text("")
        return tmp_path / "file" / "out.csv"
    if request.param == "below what takes no files":
        if not Path("/proc/self").exists():
            pytest.skip("no /proc")
        return Path("/proc/out.csv")
    number = errno.ENOSPC if request.param == "full" else errno.EROFS

    def failing(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tempfile, "TemporaryFile", failing)
    return tmp_path / "out.csv"


@pytest.mark.parametrize("verb", VERBS_THAT_WRITE)
def test_what_cannot_be_written_is_found_before_the_work(verb, place, capsys):
    before = list(place.parent.iterdir()) if place.parent.is_dir() and verb != "check" else []
    refused(capsys, command(verb, place), "CannotWrite", place.name)
    assert not place.exists() and (not before or list(place.parent.iterdir()) == before)


@pytest.mark.parametrize("verb", VERBS_THAT_WRITE)
def test_a_file_in_the_place_of_a_folder_or_the_reverse(verb, tmp_path, capsys):
    out = tmp_path / "out.csv"
    if verb in OF_A_FILE:
        out.mkdir()
    else:
        out.write_text("mine")
    if verb in INPUTS_FIRST:
        assert main(command(verb, out)) == 2
    else:
        refused(capsys, command(verb, out), "OutputExists" if verb in ALREADY else "CannotWrite")
    assert out.is_dir() if verb in OF_A_FILE else out.read_text() == "mine"


HOLD = """
import sys
from h2o_theory.store import lock_output
with lock_output(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("verb", sorted(set(VERBS_THAT_WRITE) - {"check"}))
def test_an_output_of_another_process_is_refused(verb, tmp_path, capsys, holder):
    out = tmp_path.parent / "held.csv"
    refused(capsys, command(verb, out), "OutputExists", str(out), f"process {holder}")


@pytest.fixture(scope="module")
def holder(tmp_path_factory):
    """The number of a process that holds ``held.csv`` among the temporary files."""
    out = tmp_path_factory.getbasetemp() / "held.csv"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(out)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "held\n"
        yield process.pid
        process.stdin.close()


def test_verbs_without_an_output_need_none(capsys):
    assert main(["ls", "policies"]) == 0
