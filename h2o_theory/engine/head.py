"""All runs of one kv_head: rows generated block by block and shared by every task."""

import time
from dataclasses import dataclass

import numpy as np

from h2o_theory.attention import SparsityCount, count_sparse
from h2o_theory.engine.bounds import Optima
from h2o_theory.engine.measure import HeadTotals, Measure
from h2o_theory.engine.record import record
from h2o_theory.engine.rows import HeadRows
from h2o_theory.engine.run import make_run
from h2o_theory.engine.slots import slot_columns
from h2o_theory.engine.stack import StackRun
from h2o_theory.engine.tensors import head_tensors
from h2o_theory.optimum import to_fixed_point
from h2o_theory.policies import Context

__all__ = ["Task", "head_schedules", "replay_head"]


@dataclass(frozen=True)
class Task:
    """A policy at a resolved budget; ``budget_text`` is the budget as asked for."""

    policy: object
    budget: int
    budget_text: str
    prefill: int = 0
    seed: int = 0

    def context(self, tokens, layer, kv_head, tensors=None):
        """What the policy of this task is told on that kv_head."""
        return Context(self.budget, tokens, self.prefill, layer, kv_head, self.seed, tensors)


def replay_head(trace, layer, kv_head, tasks, shared, *, optimum=True):
    """Replay every task on one kv_head; returns one dict of results per task.

    Parameters
    ----------
    trace : Trace
    layer, kv_head : int
    tasks : list of Task
    shared : dict of int to array
        Schedules already decided for several heads, by index into ``tasks``.
    optimum : bool
        Without it, and without clairvoyant policies, rows are made in a single pass and memory is
        O(B x T) for blocks of B rows; either takes the square of mean rows, 8 T^2 bytes.
    """
    blocks, tokens = HeadRows(trace, layer, kv_head), trace.tokens
    square = optima = None
    if optimum or any(task.policy.needs_future for task in tasks):
        square = blocks.square()
    if optimum:
        optima = Optima(to_fixed_point(square), tasks)
    tensors = head_tensors(trace, layer, kv_head, [task.policy for task in tasks])
    contexts = [task.context(tokens, layer, kv_head, tensors) for task in tasks]
    runs, schedules = _plan(tasks, contexts, square, optima, shared)
    measures = [
        Measure(schedule, task.prefill) for task, schedule in zip(tasks, schedules, strict=True)
    ]
    totals = {task.prefill: HeadTotals(tokens, task.prefill) for task in tasks}
    values = np.zeros((tokens, 0))
    if trace.has_values(layer):
        values = trace.values(layer, kv_head).astype(np.float64, order="C")
    seconds, sparsity = np.zeros(len(tasks)), SparsityCount()
    for block in blocks:
        sparsity += count_sparse(block.rows, block.start)
        outputs = block.rows[:, :, : block.stop] @ values[: block.stop]
        for total in totals.values():
            total.add(block)
        for run, members in runs:
            began = time.thread_time()
            run.advance(block.rows, block.start, block.sink_share)
            seconds[members] += (time.thread_time() - began) / len(members)
        for measure in measures:
            measure.add(block, values, outputs)
    return [
        record(task, context, schedule, measure, totals[task.prefill], optima, sparsity)
        | {"seconds": spent}
        | slot_columns(trace, layer, kv_head, task.policy, schedule, task.prefill)
        for task, context, schedule, measure, spent in zip(
            tasks, contexts, schedules, measures, seconds.tolist(), strict=True
        )
    ]


def head_schedules(trace, layer, kv_head, tasks, shared):
    """The schedules of every task on one kv_head, int64 [T] each; arguments as for a replay."""
    blocks, tokens = HeadRows(trace, layer, kv_head), trace.tokens
    square = optima = None
    needs_optimum = any(task.policy.needs_optimum for task in tasks)
    if needs_optimum or any(task.policy.needs_future for task in tasks):
        square = blocks.square()
    if needs_optimum:
        optima = Optima(to_fixed_point(square), tasks)
    tensors = head_tensors(trace, layer, kv_head, [task.policy for task in tasks])
    contexts = [task.context(tokens, layer, kv_head, tensors) for task in tasks]
    runs, schedules = _plan(tasks, contexts, square, optima, shared)
    for block in blocks if runs else ():
        for run, _ in runs:
            run.advance(block.rows, block.start, block.sink_share)
    return schedules


def _plan(tasks, contexts, square, optima, shared):
    """The runs to advance, each with the indices of the tasks it serves, and all schedules.

    Schedules that are known beforehand, from the policy or because heads share them, need no
    run; budgets of a nested policy with the same protected parts share one.
    """
    schedules, runs, stacks = [None] * len(tasks), [], {}
    for index, (task, context) in enumerate(zip(tasks, contexts, strict=True)):
        if index in shared:
            schedules[index] = shared[index]
            continue
        schedules[index] = task.policy.schedule(context, optima)
        if schedules[index] is not None:
            continue
        if task.policy.nested:
            parts = task.policy.parts(task.budget)
            key = (task.policy, parts.n_sink, parts.n_recent, task.prefill, task.seed)
            stacks.setdefault(key, []).append(index)
        else:
            run = make_run(task.policy, context, square)
            schedules[index] = run.evicted_at
            runs.append((run, [index]))
    for (policy, *_), members in stacks.items():
        run = StackRun(policy, [contexts[index] for index in members], square)
        runs.append((run, members))
        for index, schedule in zip(members, run.schedules, strict=True):
            schedules[index] = schedule
    return runs, schedules
