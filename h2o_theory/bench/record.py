"""Recording against the plain forward pass: time within one run, peak memory in fresh processes."""

import resource
import subprocess
import sys
import tempfile
import time
from statistics import median

import pandas as pd

from h2o_theory.recorder import load_model, record

__all__ = ["print_peak", "run"]

MODEL = "smollm2-135m"
PASSES = 8192
"""Tokens pushed through the model per size and variant: short passes are repeated more often."""


def run(sizes=(512, 1024, 2048), progress=None):
    """Time and memory of recording all layers of the packaged model, float32 on the CPU.

    Both variants run the model's decoder on the same tokens without the language-model head.
    Recording includes copies, self-check, checksums, writing and syncing of the whole trace to
    the temporary folder. The passes alternate, and the ratio of times is the median over
    neighbouring passes, which other load on the machine hits alike. Memory is the peak resident
    size of a fresh process that loads the model and does one pass.

    Returns
    -------
    pandas.DataFrame
        benchmark, size (tokens), seconds, baseline, baseline_seconds (medians), ratio
        (recording / plain, of seconds or of peak memory), note. Rows on memory have no seconds.
    """
    loaded, table = load_model(MODEL), []
    for done, tokens in enumerate(sizes):
        table.append(_time_row(loaded, tokens))
        if progress:
            progress(2 * done + 1, 2 * len(sizes), f"recording {tokens} tokens, time")
        table.append(_memory_row(loaded, tokens))
        if progress:
            progress(2 * done + 2, 2 * len(sizes), f"recording {tokens} tokens, memory")
    return pd.DataFrame(table)


def _time_row(loaded, tokens):
    plain, recorded, report = [], [], None
    _pass(loaded, tokens, recording=False)
    for number in range(max(4, PASSES // tokens)):
        for recording in (number % 2 == 0, number % 2 == 1):
            seconds, written = _pass(loaded, tokens, recording=recording)
            (recorded if recording else plain).append(seconds)
            report = written or report
    return {
        "benchmark": "recording q, k, v of all layers: time",
        "size": tokens,
        "seconds": median(recorded),
        "baseline": "the same forward pass without recording",
        "baseline_seconds": median(plain),
        "ratio": median(ours / theirs for ours, theirs in zip(recorded, plain, strict=True)),
        "note": f"{len(plain)} pairs of passes, best {min(recorded):.2f} against "
        f"{min(plain):.2f} s; {report.bytes / 1e6:.0f} MB written, "
        f"{report.checked_rows} rows checked, "
        f"largest error {max(report.check_error.values()):.1e}",
    }


def _memory_row(loaded, tokens):
    plain, recorded = (_peak_of_process(tokens, recording) for recording in (False, True))
    config = loaded.model.config
    matrices = 4 * config.num_attention_heads * tokens**2 * config.num_hidden_layers
    return {
        "benchmark": "recording q, k, v of all layers: peak memory",
        "size": tokens,
        "seconds": float("nan"),
        "baseline": "the same forward pass without recording",
        "baseline_seconds": float("nan"),
        "ratio": recorded / plain,
        "note": f"{(recorded - plain) / 1e6:+.0f} MB over {plain / 1e6:.0f} MB; the attention "
        f"matrices, which are never built, are {matrices / 1e6:.0f} MB",
    }


def _pass(loaded, tokens, *, recording):
    """One forward pass; returns its seconds and the recording's report, if any."""
    import torch

    ids = torch.randint(3, 49000, (1, tokens), generator=torch.Generator().manual_seed(tokens))
    network, report = loaded.model.base_model, None
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        if recording:
            with record(loaded, f"{folder}/trace") as handle:
                network(ids, use_cache=False)
            report = handle.report
        else:
            network(ids, use_cache=False)
        return time.perf_counter() - began, report


def _peak_of_process(tokens, recording):
    """Peak resident bytes of a fresh process that does one pass.

    A process inherits the peak of the one that started it, and this one holds a model already;
    so a bare interpreter stands between the two.
    """
    code = f"from h2o_theory.bench.record import print_peak; print_peak({tokens}, {recording})"
    between = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
    done = subprocess.run(
        [sys.executable, "-c", between, sys.executable, "-c", code],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return int(done.stdout)


def print_peak(tokens, recording):
    """Load, do one pass and print the peak resident bytes of this process (the child's side)."""
    _pass(load_model(MODEL), tokens, recording=recording)
    unit = 1 if sys.platform == "darwin" else 1024
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
