"""How much a sweep has to do, and about how long it will take, before it is run."""

import time
from dataclasses import dataclass

import numpy as np

from h2o_theory.engine import replay
from h2o_theory.engine.bounds import Optima
from h2o_theory.engine.compiling import compile_policies
from h2o_theory.engine.head import Task
from h2o_theory.engine.rows import sink_share
from h2o_theory.errors import H2OTheoryError
from h2o_theory.optimum import to_fixed_point
from h2o_theory.policies import KnownSchedule, parse_policies
from h2o_theory.store import CellStore
from h2o_theory.sweep.plan import group_cells, plan_cells
from h2o_theory.sweep.run import as_spec, unfinished
from h2o_theory.trace import Trace

__all__ = ["Estimate", "estimate_sweep"]

_CUT = 512
"""Tokens of the head that is replayed to calibrate."""


@dataclass(frozen=True)
class Estimate:
    """The size of a sweep.

    Attributes
    ----------
    cells, finished, units : int
        All cells, those finished before, and the units of work that the others make.
    damaged : tuple of str
        Damaged cell files, to be computed anew.
    cpu_seconds : float
        CPU time of what is left, extrapolated; NaN if nothing could be calibrated.
    calibration : str
        What the estimate rests on, in words.
    """

    cells: int
    finished: int
    units: int
    damaged: tuple
    cpu_seconds: float
    calibration: str


def estimate_sweep(spec, out, progress=None):
    """Count the cells of a spec and estimate the time of those that are not finished.

    One head of the first trace, cut to its first 512 tokens, is replayed under the spec's policies
    and budgets; its CPU time is scaled by the entries that are visible over all cells, and that of
    the optimum by budget times length squared. Expect a factor of two either way. Nothing is
    written. Raises what :func:`run_sweep` raises.
    """
    spec = as_spec(spec)
    traces, cells = plan_cells(spec)
    store = CellStore(out)
    units = unfinished(store, group_cells(spec, cells))
    damaged = tuple(map(str, store.damaged))
    todo = [cell for unit in units for cell in unit.cells]
    seconds, words = 0.0, "nothing is left to do"
    if todo:
        compile_policies(parse_policies(spec.policies), progress)
        seconds, words = _extrapolated(spec, traces, todo)
    return Estimate(len(cells), len(cells) - len(todo), len(units), damaged, seconds, words)


def _extrapolated(spec, traces, todo):
    first = todo[0]
    cut = _cut(traces[first.trace], first.layer, first.kv_head)
    tasks = _tasks(spec, first, todo, cut.tokens)
    if not tasks:
        return float("nan"), "no policy of the grid can run on a cut head"
    began = time.process_time()
    for budget in sorted({task.budget for task in tasks}):
        own = [task.policy for task in tasks if task.budget == budget]
        replay(cut, own, budget, optimum=False, workers=1)
    spent = time.process_time() - began
    whole = sum(_visible(cell.budget, traces[cell.trace].tokens) for cell in todo)
    seconds = spent * whole / sum(_visible(task.budget, cut.tokens) for task in tasks)
    if spec.optimum:
        seconds += _optimum_seconds(cut, tasks, traces, todo)
    return seconds, (
        f"extrapolated from one head of {traces[first.trace].name} cut to {cut.tokens} tokens"
    )


def _optimum_seconds(cut, tasks, traces, todo):
    began = time.process_time()
    Optima(to_fixed_point(cut.rows(0, 0).mean(axis=0)), tasks)
    spent = time.process_time() - began
    work = {}
    for cell in todo:
        place = (cell.trace, cell.layer, cell.kv_head, cell.prefill)
        cost = cell.budget * traces[cell.trace].tokens ** 2
        if cell.budget < traces[cell.trace].tokens:
            work[place] = max(work.get(place, 0), cost)
    own = max((task.budget for task in tasks if task.budget < cut.tokens), default=1)
    return spent * sum(work.values()) / (own * cut.tokens**2)


def _tasks(spec, first, todo, tokens):
    """The tasks of the first head, with budgets of at most ``tokens``; what cannot run is left."""
    policies, tasks = parse_policies(spec.policies), {}
    for cell in todo:
        policy, budget = policies[cell.policy], min(cell.budget, tokens)
        if (cell.trace, cell.layer, cell.kv_head) != (first.trace, first.layer, first.kv_head):
            continue
        if isinstance(policy, KnownSchedule) or set(policy.needs.split()) - {"rows", "positions"}:
            continue
        try:
            policy.describe(budget)
        except H2OTheoryError:
            continue
        tasks[cell.policy, budget] = Task(policy, budget, str(budget))
    return list(tasks.values())


def _cut(trace, layer, kv_head):
    tokens = min(trace.tokens, _CUT)
    rows = trace.rows(layer, kv_head, 0, tokens)[:, :, :tokens]
    own = np.arange(tokens)
    rows[:, own, own] += sink_share(trace, layer, rows)  # what is timed sums to one
    values = None
    if trace.has_values(layer):
        values = trace.values(layer, kv_head)[None, None, :tokens]
    return Trace.from_attention(rows[None], kv_heads=1, values=values)


def _visible(budget, tokens):
    """Entries that all rows of a head see: sum over t of min(t + 1, k)."""
    return int(np.minimum(np.arange(1, tokens + 1), budget).sum())
