"""How much a sweep has to do, and about how long it will take, before it is run."""

import time
from dataclasses import dataclass

import numpy as np

from h2o_theory.engine import replay
from h2o_theory.engine.bounds import Optima
from h2o_theory.engine.compiling import compile_policies
from h2o_theory.engine.rows import sink_share
from h2o_theory.errors import H2OTheoryError
from h2o_theory.optimum import to_fixed_point
from h2o_theory.policies import Context, KnownSchedule
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
        compile_policies([cell.run.policy for cell in todo], progress)
        seconds, words = _extrapolated(spec, traces, todo)
    return Estimate(len(cells), len(cells) - len(todo), len(units), damaged, seconds, words)


def _extrapolated(spec, traces, todo):
    first = todo[0]
    cut = _cut(traces[first.trace], *first.head)
    pairs = _on_cut_head(first, todo, cut.tokens)
    if not pairs:
        return float("nan"), "no policy of the grid can run on a cut head"
    began = time.process_time()
    for budget in sorted({budget for _, budget in pairs}):
        own = [policy for policy, other in pairs if other == budget]
        replay(cut, own, budget, optimum=False, workers=1)
    spent = time.process_time() - began
    whole = sum(_visible(cell.run.tokens[cell.head], cell.run.length) for cell in todo)
    seconds = spent * whole / sum(_visible(budget, cut.tokens) for _, budget in pairs)
    if spec.optimum:
        seconds += _optimum_seconds(cut, [budget for _, budget in pairs], todo)
    return seconds, (
        f"extrapolated from one head of {traces[first.trace].name} cut to {cut.tokens} tokens"
    )


def _optimum_seconds(cut, budgets, todo):
    began = time.process_time()
    Optima(to_fixed_point(cut.rows(0, 0).mean(axis=0)), {(0, budget) for budget in budgets})
    spent = time.process_time() - began
    work = {}
    for cell in todo:
        place = (cell.trace, cell.head, cell.run.prefill)
        budget, tokens = cell.run.tokens[cell.head], cell.run.length
        if budget < tokens:
            work[place] = max(work.get(place, 0), budget * tokens**2)
    own = max((budget for budget in budgets if budget < cut.tokens), default=1)
    return spent * sum(work.values()) / (own * cut.tokens**2)


def _on_cut_head(first, todo, tokens):
    """Policies and budgets of the first head, at most ``tokens``; what cannot run is left out."""
    found = {}
    for cell in todo:
        policy, budget = cell.run.policy, min(cell.run.tokens[cell.head], tokens)
        if (cell.trace, cell.head) != (first.trace, first.head):
            continue
        if isinstance(policy, KnownSchedule) or set(policy.needs.split()) - {"rows", "positions"}:
            continue
        try:
            policy.require(Context(budget, tokens))
        except H2OTheoryError:
            continue
        found[id(policy), budget] = policy, budget
    return list(found.values())


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
