"""Killed at any moment: a valid trace, or a folder that is plainly none and can be resumed."""

import errno
import subprocess
import sys
from pathlib import Path

import crashing_writer
import pytest

from h2o_theory.errors import CannotWrite, OutputExists, TraceNotFound, UnfinishedTrace
from h2o_theory.trace import LayerSpec, TraceSpec, TraceWriter, open_trace, validate

MODES = ("fresh", "replace", "resume")


@pytest.fixture(scope="module", params=MODES)
def wreckage(request, tmp_path_factory):
    """(mode, folders): what is left when a writer is killed at each operation in turn."""
    folder = tmp_path_factory.mktemp(request.param)
    script = Path(crashing_writer.__file__)
    command = [sys.executable, str(script), str(folder), request.param]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    moments = int(done.stdout)
    assert moments > 40
    return request.param, [folder / str(moment) for moment in range(moments)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Folders of the uninterrupted trace and of the one it replaces."""
    folder = tmp_path_factory.mktemp("whole")
    for seed in (0, 1):
        crashing_writer.write(folder / str(seed), seed=seed)
    return folder / "0", folder / "1"


def leave_unfinished(folder):
    """``folder/t.unfinished`` with two segments, by a process of its own that gets killed."""
    code = (
        "import sys, pathlib, crashing_writer\n"
        "crashing_writer.prepare_unfinished(pathlib.Path(sys.argv[1]))"
    )
    tests = Path(crashing_writer.__file__).parent
    subprocess.run([sys.executable, "-c", code, str(folder / "t")], check=True, cwd=tests)


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_what_is_left_is_a_trace_or_plainly_not_one(wreckage, whole):
    mode, folders = wreckage
    seen = set()
    for folder in folders:
        if not folder.exists():
            continue
        assert {path.name for path in folder.iterdir()} <= {"t", "t.unfinished", ".t.replaced"}
        if (folder / "t").exists():
            validate(open_trace(folder / "t"))
            before = mode == "replace" and contents(folder / "t") == contents(whole[1])
            assert before or contents(folder / "t") == contents(whole[0])
            seen.add("before" if before else "after")
        elif (folder / "t.unfinished").exists():
            with pytest.raises(UnfinishedTrace, match="Rename|--resume"):
                open_trace(folder / "t")
            seen.add("unfinished")
        else:
            with pytest.raises(TraceNotFound):
                open_trace(folder / "t")
    assert {"unfinished", "after"} <= seen and ("before" in seen) == (mode == "replace")


def test_the_unfinished_folder_never_opens_unless_it_is_whole(wreckage, whole):
    _, folders = wreckage
    refused = 0
    for folder in folders:
        if not (folder / "t.unfinished").exists():
            continue
        try:
            validate(open_trace(folder / "t.unfinished"))
        except UnfinishedTrace:
            refused += 1
        else:
            assert contents(folder / "t.unfinished") == contents(whole[0])
    assert refused > 30


def test_a_rerun_is_refused_and_a_resumed_one_completes_the_trace(wreckage, whole):
    mode, folders = wreckage
    kept = []
    for folder in folders:
        unfinished = folder / "t.unfinished"
        if unfinished.exists():
            before = contents(unfinished)
            with pytest.raises((UnfinishedTrace, OutputExists)):
                crashing_writer.write(folder / "t")
            assert contents(unfinished) == before
        if not (folder / "t").exists() or contents(folder / "t") != contents(whole[0]):
            replacing = mode == "replace"
            kept.append(crashing_writer.write(folder / "t", resume=True, overwrite=replacing))
            assert [path.name for path in folder.iterdir()] == ["t"]
        assert contents(folder / "t") == contents(whole[0])
    assert kept == sorted(kept) and set(kept) == ({1, 2, 3} if mode == "resume" else {0, 1, 2, 3})


class Full(crashing_writer.Fuse):
    """A disk that is full from the n-th operation on."""

    def tick(self, *_):
        if self.left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.left -= 1


def test_a_disk_that_fills_up_leaves_a_plainly_unfinished_folder(tmp_path, whole, monkeypatch):
    kept, moment, full = [], 0, True
    while full:
        out, fuse = tmp_path / str(moment) / "t", Full(moment)
        with monkeypatch.context() as patch:
            crashing_writer.light(fuse, lambda *place: patch.setattr(*place, raising=False))
            try:
                crashing_writer.write(out)
                full = False
            except CannotWrite as error:
                assert "No space left" in str(error)
        if full and out.parent.exists():
            assert [path.name for path in out.parent.iterdir()] == ["t.unfinished"]
            with pytest.raises(UnfinishedTrace, match="--resume"):
                open_trace(out)
        if full:
            kept.append(crashing_writer.write(out, resume=True))
        assert contents(out) == contents(whole[0])
        moment += 1
    assert kept == sorted(kept) and set(kept) == {0, 1, 2, 3} and moment > 30


def test_a_second_process_is_kept_out(tmp_path):
    code = (
        "import sys; from h2o_theory.trace import TraceWriter\n"
        "writer = TraceWriter(sys.argv[1])\nprint('open', flush=True)\nsys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "t")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == b"open\n"
        for options in ({}, {"resume": True}, {"overwrite": True}):
            with pytest.raises(OutputExists, match="another process"):
                crashing_writer.write(tmp_path / "t", **options)
        first.kill()
    assert crashing_writer.write(tmp_path / "t", resume=True) == 0
    assert validate(open_trace(tmp_path / "t")).segments == 3


def test_a_damaged_segment_is_not_kept(tmp_path, whole):
    leave_unfinished(tmp_path)
    segment = tmp_path / "t.unfinished" / "seg-000000.safetensors"
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    assert crashing_writer.write(tmp_path / "t", resume=True) == 0
    assert contents(tmp_path / "t") == contents(whole[0])


def test_resuming_a_shorter_recording_drops_what_it_does_not_write(tmp_path):
    leave_unfinished(tmp_path)
    spec = TraceSpec(5, (LayerSpec(0, 2, 1, 4, 4, 0.5), LayerSpec(3, 2, 1, 4, 4, 0.5)))
    with TraceWriter(tmp_path / "t", resume=True) as writer:
        part = crashing_writer.tensors(0, 0, 5)
        writer.add_segment(part, start=0, stop=5, layers=crashing_writer.LAYERS)
        writer.commit(spec)
    assert writer.kept == 1 and sorted(contents(tmp_path / "t")) == [
        "manifest.jsonl",
        "seg-000000.safetensors",
        "spec.json",
    ]


def test_the_refusal_says_how_far_the_recording_got(tmp_path):
    leave_unfinished(tmp_path)
    with pytest.raises(UnfinishedTrace, match="2 segments; every layer up to token 9") as caught:
        open_trace(tmp_path / "t")
    assert "--resume" in str(caught.value) and "t.unfinished" in str(caught.value)
