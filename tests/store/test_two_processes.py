"""Two processes on one output: a sweep's shards share it, everywhere else the second is told."""

import contextlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from h2o_theory.errors import OutputExists
from h2o_theory.experiments import Study
from h2o_theory.experiments.study import policy_arm
from h2o_theory.live.campaign import run_live
from h2o_theory.live.samples import sample_table
from h2o_theory.recorder.models import LoadedModel
from h2o_theory.recorder.tiny import tiny_model
from h2o_theory.sweep import run_sweep
from h2o_theory.trace import Trace

IDS = list(range(3, 27))


class Numbers:
    """A tokenizer that writes token ids."""

    def decode(self, ids):
        return " ".join(map(str, ids))


def small_model():
    return LoadedModel(tiny_model("llama"), Numbers(), "tiny", "llama", "", "test")


def small_trace(folder):
    rows = np.tril(np.random.default_rng(0).random((4, 2, 20, 20)))
    rows /= rows.sum(-1, keepdims=True)
    return Trace.from_attention(rows, model={"id": "made-up"}).save(folder)


def sweep(out, progress, **options):
    trace = out.parent / "small.trace"
    spec = {"traces": [str(trace)], "policies": ["h2o", "lru"], "budgets": [5, 8]}
    return run_sweep(spec, out, workers=1, progress=progress, **options)


def live(out, progress):
    run_live(small_model(), [IDS], "h2o,recent", "6,9", out=out, progress=progress)


def samples(out, progress):
    sample_table(
        small_model(), IDS, "h2o,recent", "6,9", samples=2, new_tokens=2, temperature=1.0,
        out=out, progress=progress,
    )  # fmt: skip


def experiment(out, progress):
    """A study shows no progress of short cells, so its arm tells when it is at work."""
    study, arm = Study(small_model(), IDS, out, tokens=24), policy_arm("h2o", 6, 24)

    def run(*arguments):
        if progress:
            progress(1, 2, "cells")
        return arm.run(*arguments)

    study.cell(0, type(arm)(arm.label, arm.what, run))


CAMPAIGNS = {"sweep": sweep, "live": live, "samples": samples, "experiment": experiment}


def wait_in_the_middle(done, total, label):
    if label in ("cells", "samples") and done < total:
        print("in the middle", flush=True)
        sys.stdin.readline()


@contextlib.contextmanager
def in_the_middle(name, out):
    """Another process that has begun a campaign, and goes on when told so by ``finish()``."""
    command = [sys.executable, __file__, name, str(out)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "in the middle\n"
            yield process
            process.communicate("\n", timeout=120)
            assert process.returncode == 0
        finally:
            process.kill()


@pytest.mark.parametrize("name", ["live", "samples", "experiment"])
def test_the_second_process_is_told_and_the_first_finishes(name, tmp_path):
    out = tmp_path / "out"
    campaign = CAMPAIGNS[name]
    with in_the_middle(name, out) as first:
        with pytest.raises(OutputExists, match=f"process {first.pid}"), torch.no_grad():
            campaign(out, None)
    campaign(out, None)


@pytest.mark.parametrize("shards", [False, True])
def test_sweeps_share_a_folder(shards, tmp_path):
    """As shards, and as two runs of the same cells, which both finish with the same bytes."""
    small_trace(tmp_path / "small.trace")
    alone = sweep(tmp_path / "alone", None)
    out = tmp_path / "out"
    with in_the_middle("shard" if shards else "sweep", out):
        second = sweep(out, None, shard=(2, 2) if shards else None)
        assert second.failed == 0
    assert (out / "results.parquet").read_bytes() == Path(alone.table).read_bytes()
    again = sweep(out, None)
    assert again.ran == 0 and again.skipped == alone.ran


if __name__ == "__main__":
    name, out = sys.argv[1], Path(sys.argv[2])
    if name == "shard":
        sweep(out, wait_in_the_middle, shard=(1, 2))
    else:
        CAMPAIGNS[name](out, wait_in_the_middle)
