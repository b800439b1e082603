"""Writes a small trace again and again, killed by SIGKILL at each file operation in turn.

Run as ``python crashing_writer.py FOLDER``: for n = 0, 1, ... a forked child records to
``FOLDER/n/t`` and kills itself before its n-th operation on a file; halves of a write count as
operations of their own. Prints how many moments there were. Nothing but numpy and the trace
package is loaded, so that a fork is cheap and single-threaded.
"""

import builtins
import os
import signal
import sys
from pathlib import Path

import numpy as np

from h2o_theory.store import atomic
from h2o_theory.trace import LayerSpec, TraceSpec, TraceWriter, manifest

TOKENS, LAYERS, CUTS = 12, (0, 3), (0, 5, 9, 12)


def tensors(seed, start, stop):
    """Rows ``start .. stop`` of all layers, the same for the same seed."""
    part = {}
    for layer in LAYERS:
        rng = np.random.default_rng((seed, layer))
        for kind, heads in (("q", 2), ("k", 1), ("v", 1)):
            part[f"{layer}.{kind}"] = rng.normal(size=(heads, TOKENS, 4))[:, start:stop]
        part[f"{layer}.lo"] = np.zeros(stop - start, "i4")
        part[f"{layer}.hi"] = np.arange(start + 1, stop + 1, dtype="i4")
    return part


def write(out, *, seed=0, **options):
    """Record the trace at ``out``; returns how many segments were kept."""
    layers = tuple(LayerSpec(layer, 2, 1, 4, 4, 0.5) for layer in LAYERS)
    spec = TraceSpec(TOKENS, layers, dtype="float64")
    with TraceWriter(out, plan=spec, **options) as writer:
        for start, stop in zip(CUTS, CUTS[1:], strict=False):
            writer.add_segment(tensors(seed, start, stop), start=start, stop=stop, layers=LAYERS)
        writer.commit(spec)
    return writer.kept


class Fuse:
    """Kills the process at the n-th operation."""

    def __init__(self, operations):
        self.left = operations

    def tick(self, *_):
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1


class Slow:
    """A file whose writes happen in two halves, each on disk before the next operation."""

    def __init__(self, file, fuse):
        self._file, self._fuse = file, fuse

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._file.close()

    def write(self, data):
        for half in (data[: len(data) // 2], data[len(data) // 2 :]):
            self._fuse.tick()
            self._file.write(half)
            self._file.flush()


def light(fuse, put=setattr):
    """Make opening, writing (in halves) and flushing of the writer's files count."""

    def slow_open(*args, **options):
        fuse.tick()
        return Slow(builtins.open(*args, **options), fuse)

    def slow_sync(handle, sync=os.fsync):
        fuse.tick()
        sync(handle)

    put(atomic, "open", slow_open)
    put(manifest, "open", slow_open)
    put(os, "fsync", slow_sync)


def watch_folders(fuse):
    """Make changes of folders count, until the process ends."""
    watched = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree")
    sys.addaudithook(lambda event, _: fuse.tick() if event in watched else None)


def main(folder, mode):
    """Kill a writer at every moment; mode: fresh, replace (over a trace) or resume."""
    moment = 0
    while True:
        out = Path(folder) / str(moment) / "t"
        if mode == "replace":
            write(out, seed=1)
        if mode == "resume":
            prepare_unfinished(out)
        child = os.fork()
        if child == 0:
            fuse = Fuse(moment)
            light(fuse)
            watch_folders(fuse)
            write(out, overwrite=mode == "replace", resume=mode == "resume")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            print(moment)
            return
        assert os.WTERMSIG(status) == signal.SIGKILL
        moment += 1


def prepare_unfinished(out):
    """One good segment, then one of another recording: the resumed run must replace it."""
    child = os.fork()
    if child == 0:
        writer = TraceWriter(out)
        for seed, start, stop in ((0, 0, 5), (1, 5, 9)):
            part = tensors(seed, start, stop)
            writer.add_segment(part, start=start, stop=stop, layers=LAYERS)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
