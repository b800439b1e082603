"""H2O replay against the loop one would write in PyTorch, in head-steps per second of one core."""

import time

import numpy as np
import pandas as pd

from h2o_theory.engine.run import make_run
from h2o_theory.policies import Context, make_policy

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
        above 1 means faster than the baseline), note. Times are the best of interleaved runs.
    """
    table = []
    for done, tokens in enumerate(sizes, start=1):
        rows = _rows(HEADS, tokens)
        budget = tokens // 5
        ours, theirs = [], []
        _compiled(rows[:1], budget)
        for _ in range(REPEATS):
            schedule, seconds = _timed(_compiled, rows, budget)
            ours.append(seconds)
            reference, seconds = _timed(_pytorch, rows, budget)
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


def _timed(function, *arguments):
    began = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - began


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
    policy, tokens = make_policy("h2o"), rows.shape[1]
    schedules = []
    for head in range(len(rows)):
        replayed = make_run(policy, Context(budget, tokens))
        replayed.advance(rows[head : head + 1], 0)
        schedules.append(replayed.evicted_at)
    return np.stack(schedules)


def _pytorch(rows, budget):
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
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
    torch.set_num_threads(threads)
    return evicted_at.numpy()
