"""What is run on one kv_head: rows generated block by block and shared by every run."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from h2o_theory.annotations import Head
from h2o_theory.attention import SparsityCount, count_sparse
from h2o_theory.engine.admission import Run
from h2o_theory.engine.bounds import Optima
from h2o_theory.engine.measure import HeadTotals, Measure
from h2o_theory.engine.measured import measured
from h2o_theory.engine.rows import HeadRows
from h2o_theory.engine.run import make_run
from h2o_theory.engine.slots import slot_columns
from h2o_theory.engine.stack import StackRun
from h2o_theory.engine.tensors import head_tensors
from h2o_theory.optimum import to_fixed_point

__all__ = ["head_schedules", "replay_head"]


def replay_head(
    trace: Any, head: Head, runs: list[Run], shared: Mapping, *, optimum: bool = True
) -> list[dict[str, Any]]:
    """Replay every run on one kv_head; returns one dict of measures per run.

    Parameters
    ----------
    trace : Trace
    head : (layer, kv_head)
    runs : list of Run
    shared : dict of (Run, layer) to array
        Schedules already decided for several heads.
    optimum : bool
        Without it, and without clairvoyant policies, rows are made in a single pass and memory is
        O(B x T) for blocks of B rows; either takes the square of mean rows, 8 T^2 bytes.
    """
    blocks, tokens, layer = HeadRows(trace, *head), trace.tokens, head[0]
    square, optima = _known_beforehand(blocks, head, runs, optimum)
    loops, schedules = _plan(trace, head, runs, square, optima, shared)
    measures = [
        Measure(schedule, run.prefill) for run, schedule in zip(runs, schedules, strict=True)
    ]
    totals = {run.prefill: HeadTotals(tokens, run.prefill) for run in runs}
    values = np.zeros((tokens, 0))
    if trace.has_values(layer):
        values = trace.values(*head).astype(np.float64, order="C")
    seconds, sparsity = np.zeros(len(runs)), SparsityCount()
    for block in blocks:
        sparsity += count_sparse(block.rows, block.start)
        outputs = block.rows[:, :, : block.stop] @ values[: block.stop]
        for total in totals.values():
            total.add(block)
        for loop, members in loops:
            began = time.thread_time()
            loop.advance(block.rows, block.start, block.sink_share)
            seconds[members] += (time.thread_time() - began) / len(members)
        for measure in measures:
            measure.add(block, values, outputs)
    return [
        measured(run, head, schedule, measure, totals[run.prefill], optima, sparsity)
        | {"seconds": spent}
        | slot_columns(trace, *head, run.policy, schedule, run.prefill)
        for run, schedule, measure, spent in zip(
            runs, schedules, measures, seconds.tolist(), strict=True
        )
    ]


def head_schedules(trace: Any, head: Head, runs: list[Run], shared: Mapping) -> list[np.ndarray]:
    """The schedules of every run on one kv_head, int64 [T] each; arguments as for a replay."""
    blocks = HeadRows(trace, *head)
    needs_optimum = any(run.policy.needs_optimum for run in runs)
    square, optima = _known_beforehand(blocks, head, runs, needs_optimum)
    loops, schedules = _plan(trace, head, runs, square, optima, shared)
    for block in blocks if loops else ():
        for loop, _ in loops:
            loop.advance(block.rows, block.start, block.sink_share)
    return schedules


def _known_beforehand(blocks, head, runs, optimum):
    """The square of mean rows and the optimum, as far as they are needed; else None."""
    square = optima = None
    if optimum or any(run.policy.needs_future for run in runs):
        square = blocks.square()
    if optimum:
        wanted = {(run.prefill, run.tokens[head]) for run in runs}
        optima = Optima(to_fixed_point(square), wanted)
    return square, optima


def _plan(trace, head, runs, square, optima, shared):
    """The loops to advance, each with the indices of the runs it serves, and all schedules.

    Schedules that are known beforehand, from the policy or because heads share them, need no
    loop; budgets of a nested policy with the same protected parts share one.
    """
    tensors = head_tensors(trace, *head, [run.policy for run in runs])
    contexts = [run.context(*head, tensors) for run in runs]
    schedules, loops, stacks = [None] * len(runs), [], {}
    for index, (run, context) in enumerate(zip(runs, contexts, strict=True)):
        schedules[index] = shared.get((run, head[0]))
        if schedules[index] is None:
            schedules[index] = run.policy.schedule(context, optima)
        if schedules[index] is not None:
            continue
        if run.policy.nested:
            parts = run.policy.parts(context.budget)
            key = (run.policy, parts.n_sink, parts.n_recent, run.prefill, run.seed)
            stacks.setdefault(key, []).append(index)
        else:
            loop = make_run(run.policy, context, square)
            schedules[index] = loop.evicted_at
            loops.append((loop, [index]))
    for (policy, *_), members in stacks.items():
        loop = StackRun(policy, [contexts[index] for index in members], square)
        loops.append((loop, members))
        for index, schedule in zip(members, loop.schedules, strict=True):
            schedules[index] = schedule
    return loops, schedules
