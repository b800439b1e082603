"""Perplexity under eviction against the plain eager forward pass: time in one run, peak memory."""

import resource
import subprocess
import sys
import time
from statistics import median

import pandas as pd

from h2o_theory.live import evaluate
from h2o_theory.recorder import load_model

__all__ = ["print_peak", "run"]

MODEL, BUDGET, PAIRS = "smollm2-135m", "20%", 4


def run(sizes=(1024,), memory_sizes=(512, 1024, 2048), progress=None):
    """Time and memory of the closed loop, H2O at 20 %, float32 on the CPU.

    Time: perplexity of the packaged model on random tokens, teacher-forced, against one forward
    pass of the same model with eager attention and all logits; the passes alternate, and the
    ratio is the median over neighbouring ones. Memory: peak resident size of a fresh process that
    loads the model and does one pass, at the first length and at longer ones.

    Returns
    -------
    pandas.DataFrame
        benchmark, size (tokens), seconds, baseline, baseline_seconds (medians), ratio (closed
        loop / baseline, of seconds or of peak memory), note.
    """
    loaded, table = load_model(MODEL), []
    steps = len(sizes) + len(memory_sizes)
    for tokens in sizes:
        table.append(_time_row(loaded, tokens))
        if progress:
            progress(len(table), steps, "closed loop")
    peaks = {}
    for tokens in memory_sizes:
        peaks[tokens] = _peak_of_process(tokens)
        table.append(_memory_row(loaded, tokens, memory_sizes[0], peaks))
        if progress:
            progress(len(table), steps, "closed loop")
    return pd.DataFrame(table)


def _time_row(loaded, tokens):
    ours, theirs, cpu = [], [], []
    for turn in range(PAIRS + 1):
        plain = _timed(lambda: _eager(loaded.model, tokens))
        live = _timed(lambda: _closed(loaded, tokens))
        if turn:  # the first turn warms up caches and kernels
            ours.append(live[0])
            theirs.append(plain[0])
            cpu.append(live[1] / plain[1])
    return {
        "benchmark": "closed-loop perplexity, H2O at 20 %: time",
        "size": tokens,
        "seconds": median(ours),
        "baseline": "the plain forward pass with eager attention",
        "baseline_seconds": median(theirs),
        "ratio": median(live / plain for live, plain in zip(ours, theirs, strict=True)),
        "note": f"{PAIRS} pairs, best {min(ours):.2f} against {min(theirs):.2f} s; ratio of CPU "
        f"time {median(cpu):.2f}",
    }


def _memory_row(loaded, tokens, first, peaks):
    heads, layers = loaded.model.config.num_attention_heads, loaded.model.config.num_hidden_layers
    return {
        "benchmark": "closed-loop perplexity, H2O at 20 %: peak memory",
        "size": tokens,
        "seconds": float("nan"),
        "baseline": f"the same at {first} tokens",
        "baseline_seconds": float("nan"),
        "ratio": peaks[tokens] / peaks[first],
        "note": f"{peaks[tokens] / 1e6:.0f} MB; the attention matrices of one layer would be "
        f"{4 * heads * tokens**2 / 1e6:.0f} MB, of all layers {layers} times that",
    }


def _timed(function):
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - cpu


def _ids(tokens):
    import torch

    return torch.randint(3, 49000, (1, tokens), generator=torch.Generator().manual_seed(tokens))


def _eager(model, tokens):
    import torch

    inner = model.config._attn_implementation
    model.set_attn_implementation("eager")
    with torch.no_grad():
        model(_ids(tokens), use_cache=False)
    model.set_attn_implementation(inner)


def _closed(loaded, tokens):
    return evaluate(loaded, _ids(tokens), "h2o", BUDGET)


def _peak_of_process(tokens):
    """Peak resident bytes of a fresh process; a bare interpreter between, which holds no model."""
    code = f"from benchmarks.live import print_peak; print_peak({tokens})"
    between = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
    done = subprocess.run(
        [sys.executable, "-c", between, sys.executable, "-c", code],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return int(done.stdout)


def print_peak(tokens):
    """Load, do one pass and print the peak resident bytes of this process (the child's side)."""
    _closed(load_model(MODEL), tokens)
    unit = 1 if sys.platform == "darwin" else 1024
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
