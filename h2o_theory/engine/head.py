"""All runs of one kv_head: rows generated block by block and shared by every policy and budget."""

import time
from dataclasses import dataclass

import numpy as np

from h2o_theory.attention import SparsityCount, count_sparse
from h2o_theory.engine.measure import Measure, count_accesses, topk_mass
from h2o_theory.engine.run import audit, make_run
from h2o_theory.engine.slots import slot_columns
from h2o_theory.engine.stack import StackRun
from h2o_theory.engine.tensors import head_tensors
from h2o_theory.optimum import FRACTION_BITS, optimum_curve, to_fixed_point
from h2o_theory.policies import Context

__all__ = ["Head", "Task", "replay_head", "shared_schedules"]

_CACHED_BYTES = 64 * 2**20
"""Rows of a head up to this size are kept between the two passes instead of made again."""

_SHARED_BYTES = 64 * 2**20
"""Rows of all heads that share a set, per block."""


@dataclass(frozen=True)
class Task:
    """A policy at a resolved budget; ``budget_text`` is the budget as asked for."""

    policy: object
    budget: int
    budget_text: str


@dataclass(frozen=True)
class Head:
    """The kv_head to replay and how."""

    layer: int
    kv_head: int
    prefill: int
    seed: int

    def context(self, budget, tokens, tensors=None):
        """What the policies of this head are told."""
        return Context(budget, tokens, self.prefill, self.layer, self.kv_head, self.seed, tensors)


def shared_schedules(trace, layers, tasks, prefill, seed):
    """Schedules of the policies whose retained set serves all heads of some layers, one per task.

    The policy sees the rows of all the layers' query heads as one group, in blocks of
    :data:`_SHARED_BYTES`; its random stream is that of the first head.
    """
    heads = [(layer, head) for layer in layers for head in trace.kv_heads(layer)]
    group = sum(trace.layer(layer).q_heads for layer in layers)
    block_rows = min(max(_SHARED_BYTES // (8 * group * trace.tokens), 1), 256)

    def blocks():
        for parts in zip(*(trace.blocks(*head, block_rows) for head in heads), strict=True):
            yield parts[0][0], np.concatenate([rows for _, rows in parts])

    mean_rows = None
    if any(task.policy.kind == "clairvoyant" for task in tasks):
        mean_rows = np.concatenate([rows.mean(axis=0) for _, rows in blocks()])
    head = Head(layers[0], 0, prefill, seed)
    runs = [
        make_run(task.policy, head.context(task.budget, trace.tokens), mean_rows) for task in tasks
    ]
    for start, rows in blocks():
        for run in runs:
            run.advance(rows, start)
    return [run.evicted_at for run in runs]


def replay_head(trace, head, tasks, shared):
    """Replay every task on one kv_head; returns one dict of results per task.

    Parameters
    ----------
    trace : Trace
    head : Head
    tasks : list of Task
    shared : dict of int to array
        Schedules already decided for the layer, by index into ``tasks``.
    """
    blocks = _Blocks(trace, head)
    mean_rows, sparsity = _summarise(blocks, trace.tokens)
    fixed = to_fixed_point(mean_rows)
    budgets = sorted({task.budget for task in tasks})
    bounds = _Bounds(fixed, budgets, head.prefill)

    tensors = head_tensors(trace, head.layer, head.kv_head, [task.policy for task in tasks])
    runs, schedules = _plan(tasks, head, trace.tokens, mean_rows, tensors, bounds, shared)
    values = np.zeros((trace.tokens, 0))
    if trace.has_values(head.layer):
        values = trace.values(head.layer, head.kv_head).astype(np.float64, order="C")
    measures = [Measure(schedule, head.prefill) for schedule in schedules]
    seconds = np.zeros(len(tasks))
    for start, rows in blocks:
        stop = start + rows.shape[1]
        outputs = rows @ values
        for run, members in runs:
            began = time.perf_counter()
            run.advance(rows, start)
            seconds[members] += (time.perf_counter() - began) / len(members)
        for measure in measures:
            measure.add(rows, fixed[start:stop], mean_rows[start:stop], start, values, outputs)
    accesses = int(count_accesses(mean_rows)[head.prefill :].sum())
    return [
        _record(task, schedule, measure, head, trace.tokens, bounds, sparsity)
        | {"hit_rate": measure.hits() / accesses, "seconds": spent}
        | slot_columns(trace, head.layer, head.kv_head, task.policy, schedule, head.prefill)
        for task, schedule, measure, spent in zip(
            tasks, schedules, measures, seconds.tolist(), strict=True
        )
    ]


def _plan(tasks, head, tokens, mean_rows, tensors, bounds, shared):
    """The runs to advance, each with the indices of the tasks it serves, and all schedules.

    Schedules that are known beforehand (shared by the layer, the full cache, the optimum) need
    no run; budgets of a nested policy with the same protected parts share one.
    """
    schedules, runs, stacks = [None] * len(tasks), [], {}
    for index, task in enumerate(tasks):
        if index in shared:
            schedules[index] = shared[index]
        elif task.policy.name == "full":
            schedules[index] = np.full(tokens, tokens)
        elif task.policy.name == "optimum":
            schedules[index] = bounds.schedules[task.budget]
        elif getattr(task.policy, "nested", False):
            parts = task.policy.parts(task.budget)
            stacks.setdefault((task.policy, parts.n_sink, parts.n_recent), []).append(index)
        else:
            run = make_run(task.policy, head.context(task.budget, tokens, tensors), mean_rows)
            schedules[index] = run.evicted_at
            runs.append((run, [index]))
    for (policy, _, _), members in stacks.items():
        contexts = [head.context(tasks[index].budget, tokens, tensors) for index in members]
        run = StackRun(policy, contexts, mean_rows)
        runs.append((run, members))
        for index, schedule in zip(members, run.schedules, strict=True):
            schedules[index] = schedule
    return runs, schedules


class _Blocks:
    """The blocks of a head's rows, re-iterable; kept in memory when they are small."""

    def __init__(self, trace, head):
        self._trace, self._head = trace, head
        group = trace.layer(head.layer).group
        self._kept = None
        if 8 * group * trace.tokens**2 <= _CACHED_BYTES:
            self._kept = list(trace.blocks(head.layer, head.kv_head))

    def __iter__(self):
        if self._kept is not None:
            return iter(self._kept)
        return self._trace.blocks(self._head.layer, self._head.kv_head)


class _Bounds:
    """The optimum and the per-row top-k bound at every budget, in fixed point, with schedules."""

    def __init__(self, fixed, budgets, prefill):
        tokens = len(fixed)
        self.topk = topk_mass(fixed, budgets, prefill)
        self.best, self.schedules = {}, {}
        if budgets[-1] == tokens:
            # A budget of T evicts nothing; the solver would need T augmentations to say so.
            self.best[tokens] = int(fixed[prefill:].sum())
            self.schedules[tokens] = np.full(tokens, tokens)
            budgets = budgets[:-1]
        if budgets:
            curve = optimum_curve(fixed, budgets[-1], budgets=budgets, prefill=prefill)
            for budget in budgets:
                self.best[budget] = int(curve.values[budget - 1])
                self.schedules[budget] = curve.schedules[budget].evicted_at


def _summarise(blocks, tokens):
    mean_rows, sparsity = np.empty((tokens, tokens)), SparsityCount()
    for start, rows in blocks:
        mean_rows[start : start + rows.shape[1]] = rows.mean(axis=0)
        sparsity += count_sparse(rows, start)
    return mean_rows, sparsity


def _record(task, schedule, measure, head, tokens, bounds, sparsity):
    context = head.context(task.budget, tokens)
    largest, average, sizes = audit(schedule, context)
    value, best, topk = measure.total_fixed(), bounds.best[task.budget], bounds.topk[task.budget]
    assert value <= best, "a policy beat the exact optimum"
    assert task.policy.name != "optimum" or value == best, "the optimum's schedule lost its value"
    unit, n_rows = 2.0**-FRACTION_BITS, len(sizes)
    retained = measure.rows()
    is_full = sizes == task.budget
    victims = np.flatnonzero(schedule < tokens)
    ages = schedule[victims] - victims
    lost, least = n_rows - value * unit, n_rows - best * unit
    reference = task.policy.kind == "reference"
    return {
        "layer": head.layer,
        "kv_head": head.kv_head,
        "policy": task.policy.name,
        "parameters": task.policy.describe(task.budget),
        "budget": task.budget_text,
        "budget_tokens": task.budget,
        "prefill": head.prefill,
        "seed": head.seed,
        "level": "open",
        "n_rows": n_rows,
        "n_rows_full": int(is_full.sum()),
        "retained_mass": float(retained.mean()),
        "retained_mass_full": float(retained[is_full].mean()) if is_full.any() else np.nan,
        "optimum_mass": best * unit / n_rows,
        "topk_mass": topk * unit / n_rows,
        "approximation_ratio": np.nan if reference or best == 0 else value / best,
        "lost_mass_ratio": lost / least if least > 1e-9 * n_rows and not reference else np.nan,
        "topk_bound_ratio": np.nan if reference else value / topk,
        "output_error": measure.output_error(),
        "kl": measure.divergence(),
        "realised_budget_max": largest,
        "realised_budget_mean": average,
        "victim_age_mean": float(ages.mean()) if ages.size else np.nan,
        "sparsity_causal": sparsity.causal_share,
        "sparsity_square": sparsity.square_share,
    }
