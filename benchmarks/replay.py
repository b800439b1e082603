"""Replay against what one would write in PyTorch, against reading the rows, and all budgets in one
pass against one budget; in head-steps per second of one core."""

import time

import numpy as np
import pandas as pd

from h2o_theory.engine.rows import rows_per_block
from h2o_theory.engine.run import make_run
from h2o_theory.engine.stack import StackRun
from h2o_theory.policies import Context, make_policy

__all__ = ["run"]

HEADS, REPEATS = 8, 5
LONG = 4096


def run(sizes=(1024,), long=LONG, progress=None):
    """Time all on the same synthetic rows, G = 1; times are CPU seconds of one thread, the best of
    interleaved runs.

    A head-step is one query row of one head. The PyTorch loop is batched over heads, keeps a mask
    over all T keys and takes ``topk`` of the evictable scores at each step; nothing is reported
    unless the evictions agree. Reading the rows is their sum, block by block like the replay. The
    budget curve is the schedules at all budgets up to the largest, against those at the largest.

    Returns
    -------
    pandas.DataFrame
        benchmark, size, seconds, baseline, baseline_seconds, ratio (baseline_seconds / seconds,
        above 1 means faster than the baseline), note.
    """
    parts = [_against_pytorch(tokens) for tokens in sizes]
    parts += [_curve(tokens, share) for tokens in sizes for share in (0.1, 0.2, 0.5)]
    table = []
    for done, part in enumerate([*parts, _against_reading(long)], start=1):
        table.append(part())
        if progress:
            progress(done, len(parts) + 1, "replay")
    return pd.DataFrame(table)


def _line(benchmark, tokens, ours, baseline, theirs, note):
    seconds, others = min(ours), min(theirs)
    return {
        "benchmark": benchmark,
        "size": tokens,
        "seconds": seconds,
        "baseline": baseline,
        "baseline_seconds": others,
        "ratio": others / seconds,
        "note": note(seconds, others),
    }


def _against_pytorch(tokens):
    def measure():
        rows, budget, ours, theirs = _rows(HEADS, tokens), tokens // 5, [], []
        for _ in range(REPEATS):
            schedules, seconds = _compiled(rows, budget)
            ours.append(seconds)
            reference, seconds = _pytorch(rows, budget)
            theirs.append(seconds)
            if not np.array_equal(schedules, reference):
                raise AssertionError("the benchmark's two replays evict different tokens")
        steps = HEADS * tokens / 1e6
        return _line(
            "H2O replay, renormalised rows, k = 20 %",
            tokens,
            ours,
            "PyTorch loop over steps, batched over heads, one thread",
            theirs,
            lambda seconds, others: (
                f"{steps / seconds:.2f} million head-steps per second of one "
                f"core against {steps / others:.3f}; same evictions"
            ),
        )

    return measure


def _against_reading(tokens):
    def measure():
        rows, budget, ours, theirs = _rows(1, tokens), tokens // 10, [], []
        for _ in range(REPEATS):
            ours.append(_compiled(rows, budget)[1])
            theirs.append(_blockwise(rows, lambda block, start: block.sum()))
        return _line(
            "H2O replay, renormalised rows, k = 10 %",
            tokens,
            ours,
            "one streaming read of the rows (their sum)",
            theirs,
            lambda seconds, others: (
                f"{tokens / seconds / 1e6:.2f} million head-steps per second; "
                f"reading {8 * tokens / others * tokens / 1e9:.1f} GB/s"
            ),
        )

    return measure


def _curve(tokens, share):
    def measure():
        rows, policy = _rows(HEADS, tokens), make_policy("heavy:rows=raw")
        largest, curve, single = int(share * tokens), [], []
        contexts = [Context(budget, tokens) for budget in range(1, largest + 1)]
        for _ in range(REPEATS):
            seconds = 0.0
            for head in range(HEADS):
                stack = StackRun(policy, contexts, None)
                seconds += _blockwise(rows[head : head + 1], stack.advance)
            curve.append(seconds)
            seconds = 0.0
            for head in range(HEADS):
                alone = make_run(policy, contexts[-1])
                seconds += _blockwise(rows[head : head + 1], alone.advance)
            single.append(seconds)
            if not np.array_equal(stack.schedules[-1], alone.evicted_at):
                raise AssertionError("one pass and one replay evict different tokens")
        return _line(
            f"accumulated attention, raw rows, all {largest} budgets to {share:.0%} in one pass",
            tokens,
            curve,
            "one replay at the largest budget",
            single,
            lambda seconds, others: (
                f"{seconds / others:.2f} times one replay for {largest} schedules"
            ),
        )

    return measure


def _rows(heads, tokens):
    """Softmax of noise, a sink, per-token salience and recency."""
    rng = np.random.default_rng(0)
    lag = np.arange(tokens)[:, None] - np.arange(tokens)
    rows = np.empty((heads, tokens, tokens))
    for own in rows:
        logits = rng.normal(size=(tokens, tokens)) + 1.5 * rng.normal(size=tokens)
        logits -= np.log1p(np.maximum(lag, 0))
        logits[:, 0] += 4.0
        logits[lag < 0] = -np.inf
        np.exp(logits - logits.max(axis=-1, keepdims=True), out=own)
        own /= own.sum(axis=-1, keepdims=True)
    return rows


def _blockwise(rows, work):
    """CPU seconds of ``work(block, start)`` over rows [1, T, T], fed block by block: rows fresh in
    the processor's cache, as in the engine, where all policies read a block right after it was
    made."""
    tokens, seconds = rows.shape[1], 0.0
    size = rows_per_block(1, tokens)
    for start in range(0, tokens, size):
        block = rows[:, start : start + size].copy()
        began = time.process_time()
        work(block, start)
        seconds += time.process_time() - began
    return seconds


def _compiled(rows, budget):
    """Schedules and CPU seconds."""
    policy, schedules, seconds = make_policy("h2o"), [], 0.0
    for head in range(len(rows)):
        replayed = make_run(policy, Context(budget, rows.shape[1]))
        seconds += _blockwise(rows[head : head + 1], replayed.advance)
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
