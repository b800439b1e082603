"""Recording against the plain forward pass: time within one run, peak memory in fresh processes."""

import resource
import subprocess
import sys
import tempfile
import time
from statistics import median

import pandas as pd

from benchmarks.record_random import run_shapes
from h2o_theory.errors import BadArgument
from h2o_theory.recorder import load_model, record
from h2o_theory.recorder.passes import prefill
from h2o_theory.trace import open_trace, packed_bytes

__all__ = ["print_peak", "run"]

MODEL = "smollm2-135m"
PASSES = 8192
"""Tokens pushed through the model per size and variant: short passes are repeated more often."""
LONG, CHUNK = 4096, 512
"""A long text and the tokens of it per pass."""


def run(sizes=(512, 1024, 2048, LONG), progress=None, device="cpu", shapes=None, tokens=None):
    """Time and memory of recording all layers of the packaged model, float32 on the CPU.

    Both variants run the model's decoder on the same tokens without the language-model head, up
    to 2048 tokens in one pass, above in chunks of 512 with a KV cache. Recording includes copies,
    self-check, checksums, writing and syncing of the whole trace to the temporary folder. The
    passes alternate, and the ratio of times is the median over neighbouring passes, which other
    load on the machine hits alike. Memory is the peak resident size of a fresh process that loads
    the model and does one pass.

    With another device or with shapes, random-weight models are recorded instead, see
    :func:`~benchmarks.record_random.run_shapes`.

    Parameters
    ----------
    sizes : tuple of int
        Tokens of each measurement.
    progress : callable (done, total, label), optional
    device, shapes
        For ``run_shapes``.
    tokens : int, optional
        In place of ``sizes``, or the length for ``run_shapes``.

    Returns
    -------
    pandas.DataFrame
        benchmark, size (tokens), seconds, baseline, baseline_seconds (medians), ratio
        (recording / plain, of seconds or of peak memory), note. Rows on memory have no seconds.

    Raises
    ------
    BadArgument
        For fewer than one token, and as ``run_shapes`` does.
    """
    if tokens is not None and tokens < 1:
        raise BadArgument("no token to record", where="tokens", got=tokens, expected="from 1")
    if shapes is not None or device != "cpu":
        return run_shapes(shapes, device=device, tokens=tokens or LONG, progress=progress)
    loaded, table = load_model(MODEL), []
    sizes = sizes if tokens is None else (tokens,)
    for done, size in enumerate(sizes):
        table.append(_time_row(loaded, size))
        if progress:
            progress(2 * done + 1, 2 * len(sizes), "recording: time and memory of each size")
        table.append(_memory_row(loaded, size))
        if progress:
            progress(2 * done + 2, 2 * len(sizes), "recording: time and memory of each size")
    return pd.DataFrame(table)


def _chunk(tokens):
    return CHUNK if tokens >= LONG else None


def _time_row(loaded, tokens):
    plain, recorded, cpu, seen = [], [], {False: [], True: []}, None
    _pass(loaded, tokens, recording=False)
    for number in range(max(2, PASSES // tokens)):
        for recording in (number % 2 == 0, number % 2 == 1):
            began = time.process_time()
            seconds, written = _pass(loaded, tokens, recording=recording)
            cpu[recording].append(time.process_time() - began)
            (recorded if recording else plain).append(seconds)
            seen = written or seen
    report, packed = seen
    return {
        "benchmark": f"recording q, k, v of all layers{_in_chunks(tokens)}: time",
        "size": tokens,
        "seconds": median(recorded),
        "baseline": "the same forward pass without recording",
        "baseline_seconds": median(plain),
        "ratio": median(ours / theirs for ours, theirs in zip(recorded, plain, strict=True)),
        "note": f"{len(plain)} pairs of passes, best {min(recorded):.2f} against "
        f"{min(plain):.2f} s, CPU time {median(cpu[True]) / median(cpu[False]):.2f} times; "
        f"{report.bytes / tokens:.0f} bytes per token on disk, packed attention in "
        f"the same dtype {packed / tokens:.0f}; {report.checked_rows} rows checked, "
        f"largest error {max(report.check_error.values()):.1e}",
    }


def _memory_row(loaded, tokens):
    plain, recorded = (_peak_of_process(tokens, recording) for recording in (False, True))
    config = loaded.model.config
    matrices = 4 * config.num_attention_heads * tokens**2 * config.num_hidden_layers
    return {
        "benchmark": f"recording q, k, v of all layers{_in_chunks(tokens)}: peak memory",
        "size": tokens,
        "seconds": float("nan"),
        "baseline": "the same forward pass without recording",
        "baseline_seconds": float("nan"),
        "ratio": recorded / plain,
        "note": f"{(recorded - plain) / 1e6:+.0f} MB over {plain / 1e6:.0f} MB; the attention "
        f"matrices, which are never built, are {matrices / 1e6:.0f} MB",
    }


def _in_chunks(tokens):
    return f" in chunks of {CHUNK}" if _chunk(tokens) else ""


def _pass(loaded, tokens, *, recording):
    """One pass; returns its seconds and, if recorded, the report and the packed rows' bytes."""
    import torch

    generator = torch.Generator().manual_seed(tokens)
    ids = torch.randint(3, 49000, (tokens,), generator=generator).tolist()
    network, chunk = loaded.model, _chunk(tokens)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        if not recording:
            prefill(network, ids, chunk)
            return time.perf_counter() - began, None
        with record(loaded, f"{folder}/trace") as handle:
            prefill(network, ids, chunk)
        seconds = time.perf_counter() - began
        return seconds, (handle.report, packed_bytes(open_trace(handle.path).spec))


def _peak_of_process(tokens, recording):
    """Peak resident bytes of a fresh process that does one pass.

    A process inherits the peak of the one that started it, and this one holds a model already;
    so a bare interpreter stands between the two.
    """
    code = f"from benchmarks.record import print_peak; print_peak({tokens}, {recording})"
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
