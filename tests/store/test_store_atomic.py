"""Files and folders appear whole or not at all, and failures are named."""

import errno
import os
import subprocess
import sys

import pytest

from h2o_theory.errors import CannotWrite, OutputExists
from h2o_theory.store import lock_output, new_file, new_folder, write_bytes
from h2o_theory.store.atomic import remove_leftovers, require_writable


def test_a_file_is_replaced_at_the_end_and_stays_if_the_block_fails(tmp_path):
    place = tmp_path / "made" / "table.csv"
    write_bytes(place, b"one")
    with pytest.raises(RuntimeError), new_file(place) as temporary:
        temporary.write_bytes(b"half")
        assert place.read_bytes() == b"one"
        raise RuntimeError
    assert place.read_bytes() == b"one" and os.listdir(place.parent) == ["table.csv"]
    write_bytes(place, b"two")
    assert place.read_bytes() == b"two" and os.listdir(place.parent) == ["table.csv"]


def test_a_folder_is_replaced_at_the_end_and_stays_if_the_block_fails(tmp_path):
    out = tmp_path / "report"
    for content in ("one", "two"):
        with new_folder(out) as folder:
            (folder / "index.html").write_text(content)
        assert (out / "index.html").read_text() == content
    with pytest.raises(RuntimeError), new_folder(out):
        raise RuntimeError
    assert (out / "index.html").read_text() == "two" and os.listdir(tmp_path) == ["report"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_what_cannot_be_written_is_named(tmp_path, monkeypatch, number):
    def failing(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(CannotWrite, match="table.csv.*Make room and run again") as caught:
        write_bytes(tmp_path / "table.csv", b"", "Make room and run again")
    assert os.strerror(number) in str(caught.value)
    assert ("disk is full" in str(caught.value)) == (number == errno.ENOSPC)
    assert os.listdir(tmp_path) == []


def test_a_place_below_a_file_is_found_out_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    require_writable(tmp_path / "new" / "folder")
    with pytest.raises(CannotWrite):
        write_bytes(tmp_path / "file" / "table.csv", b"")


def test_leftovers_of_ended_processes_go_and_those_of_running_ones_stay(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for process in (ended.pid, os.getpid()):
        (tmp_path / f".cell.{process}.partial").write_text("half")
        (tmp_path / f".report.{process}.partial").mkdir()
    remove_leftovers(tmp_path)
    left = {f".cell.{os.getpid()}.partial", f".report.{os.getpid()}.partial"}
    assert set(os.listdir(tmp_path)) == left


HOLD = """
import sys
from h2o_theory.store import lock_output
with lock_output(sys.argv[1], shared=sys.argv[2] == "shared"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("first", ["shared", "alone"])
def test_one_process_at_a_time_unless_both_share(tmp_path, first):
    out = tmp_path / "not-there-yet"
    command = [sys.executable, "-c", HOLD, str(out), first]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(OutputExists, match=f"process {other.pid}"), lock_output(out):
            pass
        if first == "shared":
            with lock_output(out, shared=True), lock_output(out, shared=True):
                assert not out.exists()
        else:
            with pytest.raises(OutputExists), lock_output(out, shared=True):
                pass
        other.kill()  # the lock of a process that was killed is free
        other.wait()
        with lock_output(out), lock_output(out):
            assert not list(tmp_path.iterdir())
