"""H2O replay against the loop one would write in PyTorch, in head-steps per second of one core."""

import time

import numpy as np
import pandas as pd

from h2o_theory.engine.run import make_run
from h2o_theory.policies import Context, make_policy
from h2o_theory.trace.reader import BLOCK_ROWS

__all__ = ["run"]

HEADS, REPEATS = 8, 5


def run(sizes=(1024,), progress=None):
    """Time both on the same synthetic rows; refuses to report unless their evictions agree.

    A head-step is one query row of one head with G = 1. The PyTorch loop is batched over heads,
    keeps a mask over all T keys and takes ``topk`` of the evictable scores at each step.

    Returns
    -------
    pandas.DataFrame
        benchmark, size, seconds, baseline, baseline_seconds, ratio (of head-steps per second,
        above 1 means faster than the baseline), note. Times are CPU seconds of one thread, the
        best of interleaved runs.
    """
    table = []
    for done, tokens in enumerate(sizes, start=1):
        rows = _rows(HEADS, tokens)
        budget = tokens // 5
        ours, theirs = [], []
        for _ in range(REPEATS):
            schedule, seconds = _compiled(rows, budget)
            ours.append(seconds)
            reference, seconds = _pytorch(rows, budget)
            theirs.append(seconds)
            if not np.array_equal(schedule, reference):
                raise AssertionError("the benchmark's two replays evict different tokens")
        steps = HEADS * tokens
        table.append(
            {
                "benchmark": "H2O replay, renormalised rows, k = 20 %",
                "size": tokens,
                "seconds": min(ours),
                "baseline": "PyTorch loop over steps, batched over heads, one thread",
                "baseline_seconds": min(theirs),
                "ratio": min(theirs) / min(ours),
                "note": f"{steps / min(ours) / 1e6:.2f} million head-steps per second of one core "
                f"against {steps / min(theirs) / 1e6:.3f}; same evictions",
            }
        )
        if progress:
            progress(done, len(sizes), "H2O replay against PyTorch")
    return pd.DataFrame(table)


def _rows(heads, tokens):
    """Softmax of noise, a sink, per-token salience and recency."""
    rng = np.random.default_rng(0)
    lag = np.arange(tokens)[:, None] - np.arange(tokens)
    logits = rng.normal(size=(heads, tokens, tokens)) + 1.5 * rng.normal(size=(heads, 1, tokens))
    logits -= np.log1p(np.maximum(lag, 0))
    logits[:, :, 0] += 4.0
    logits[:, lag < 0] = -np.inf
    rows = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return rows / rows.sum(axis=-1, keepdims=True)


def _compiled(rows, budget):
    """Schedules and CPU seconds, fed block by block: rows fresh in the processor's cache, as in
    the engine, where a block is replayed under all policies right after it was made."""
    policy, tokens = make_policy("h2o"), rows.shape[1]
    schedules, seconds = [], 0.0
    for head in range(len(rows)):
        replayed = make_run(policy, Context(budget, tokens))
        for start in range(0, tokens, BLOCK_ROWS):
            block = rows[head : head + 1, start : start + BLOCK_ROWS].copy()
            began = time.process_time()
            replayed.advance(block, start)
            seconds += time.process_time() - began
        schedules.append(replayed.evicted_at)
    return np.stack(schedules), seconds


def _pytorch(rows, budget):
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    began = time.process_time()
    attention = torch.from_numpy(rows)
    heads, tokens, _ = attention.shape
    window = budget - budget // 2
    visible = torch.zeros(heads, tokens, dtype=torch.bool)
    score = torch.zeros(heads, tokens, dtype=attention.dtype)
    evicted_at = torch.full((heads, tokens), tokens)
    position = torch.arange(tokens)
    for t in range(tokens):
        visible[:, t] = True
        row = attention[:, t].masked_fill(~visible, 0)
        score += row / row.sum(dim=-1, keepdim=True)
        if t + 1 >= budget:
            evictable = visible & (position < t - window + 2)
            candidates = score.masked_fill(~evictable, torch.inf)
            victim = candidates.topk(1, dim=-1, largest=False).indices
            visible.scatter_(1, victim, False)
            evicted_at.scatter_(1, victim, t)
    seconds = time.process_time() - began
    torch.set_num_threads(threads)
    return evicted_at.numpy(), seconds
