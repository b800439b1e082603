"""Records a tiny model in pieces, killed by SIGKILL at file operations throughout, and resumes.

Run as ``python crashing_recorder.py FOLDER STEP``: a child is forked for every STEP-th moment,
records to ``FOLDER/<moment>/t`` and kills itself there; another child then resumes. Prints a JSON
list with what each found: ``before`` (what opening said), ``kept`` (segments kept on resuming).
"""

import json
import os
import signal
import sys
import traceback
from pathlib import Path

import torch
from crashing_writer import Fuse, light, watch_folders
from recorder_models import CACHE, tokens
from transformers import DynamicCache

from h2o_theory.errors import H2OTheoryError
from h2o_theory.recorder import buffer, record
from h2o_theory.recorder.tiny import tiny_model
from h2o_theory.trace import open_trace, writer

PIECES = (17, 1, 1, 9)


def run(out, **options):
    """Record 28 tokens in four passes with a growing KV cache, in many small segments."""
    model = tiny_model("llama")
    cache = DynamicCache(config=model.config)
    with torch.no_grad(), record(model, out, tokens=sum(PIECES), **options):
        for piece in tokens(sum(PIECES)).split(PIECES, dim=1):
            model(piece, **{CACHE: cache}, use_cache=True)


def child(action):
    """Run in a forked process; whether it lived to the end."""
    process = os.fork()
    if process == 0:
        try:
            action()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0
    return True


def killed_at(out, moment):
    def action():
        fuse = Fuse(moment)
        light(fuse)
        watch_folders(fuse)
        run(out)

    return child(action)


def opened(out):
    """What opening the trace says."""
    try:
        open_trace(out)
    except H2OTheoryError as error:
        return type(error).__name__
    return "trace"


def resumed(out):
    """Resume in a child; how many segments it kept."""

    def action():
        kept = []
        commit = writer.TraceWriter.commit

        def counting(self, spec):
            kept.append(self.kept)
            return commit(self, spec)

        writer.TraceWriter.commit = counting
        run(out, resume=True)
        (out.parent / "kept").write_text(str(kept[0]))

    child(action)
    return int((out.parent / "kept").read_text())


def main(folder, step):
    """Kill, look, resume, at every ``step``-th moment."""
    torch.set_num_threads(1)
    buffer.SEGMENT_BYTES = 6000
    child(lambda: run(Path(folder) / "whole"))
    found, moment = [], 0
    while True:
        out = Path(folder) / str(moment) / "t"
        if killed_at(out, moment):
            break
        before = opened(out)
        found.append({"before": before, "kept": None if before == "trace" else resumed(out)})
        moment += int(step)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
