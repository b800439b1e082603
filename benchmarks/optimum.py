"""Speed of the exact optimum: all budgets of one head, one budget alone, and a certified interval.

All times are CPU seconds of this process, best of several runs after a warm-up, so that other
load on the machine matters little. The comparison of the curve with HiGHS favours HiGHS: it finds
one budget, the solver here all budgets up to that one. OR-tools' min-cost flow is compared where
it is installed.
"""

from importlib.util import find_spec
from itertools import count
from math import log2
from time import process_time

import numpy as np
import pandas as pd

from h2o_theory.errors import MissingDependency
from h2o_theory.optimum import optimum_at, optimum_curve, optimum_interval, to_fixed_point

__all__ = ["run"]

CURVE_TOKENS = (256, 512, 1024)
HIGHS_TOKENS = (256, 512)
LONG_TOKENS = (2048, 4096)
FLOW_TOKENS = 2048
BUDGET_DIVISOR = 5
_COLUMNS = ["benchmark", "size", "seconds", "baseline", "baseline_seconds", "ratio", "note"]
_NAN = float("nan")


def run(progress=None):
    """Measure the curve up to k = 20 %, one budget and an interval at 20 %, and their baselines.

    HiGHS at T = 1024 is not run (it takes minutes): its time is extrapolated with the exponent
    fitted to the two sizes measured, and the note says so. OR-tools is optional.

    Parameters
    ----------
    progress : callable (done, total, label), optional
        Called after each measurement.

    Returns
    -------
    pandas.DataFrame
        benchmark, size (T), seconds, baseline (name or ""), baseline_seconds (NaN if none),
        ratio (baseline_seconds / seconds), note.

    Raises
    ------
    MissingDependency
        scipy, which carries HiGHS, is not installed.
    """
    linprog, coo_array = _highs()
    has_flow = find_spec("ortools") is not None
    total = len(CURVE_TOKENS) + len(HIGHS_TOKENS) + len(LONG_TOKENS) + has_flow
    steps = count(1)

    def done():
        if progress:
            progress(next(steps), total, "exact optimum")

    table = list(_against_highs(linprog, coo_array, done))
    for tokens in LONG_TOKENS:
        fixed = to_fixed_point(_softmax_rows(tokens))
        table += _long_head(fixed)
        done()
        if has_flow and tokens == FLOW_TOKENS:
            table.append(_against_flow(fixed))
            done()
    return pd.DataFrame(table, columns=_COLUMNS)


def _against_highs(linprog, coo_array, done):
    """One row for each short size, with HiGHS extrapolated where it was not run."""
    rows = {tokens: _softmax_rows(tokens) for tokens in CURVE_TOKENS}
    curves, values, solves = {}, {}, {}
    for tokens in CURVE_TOKENS:
        curves[tokens], values[tokens] = _time_curve(to_fixed_point(rows[tokens]), 7)
        done()
    for tokens in HIGHS_TOKENS:
        problem = _x_form(rows[tokens], tokens // BUDGET_DIVISOR, coo_array)
        solves[tokens], value = _time_highs(problem, linprog)
        value += rows[tokens].trace()
        assert abs(value - values[tokens] / 2.0**36) < 1e-5, "HiGHS and the curve disagree"
        done()
    small, large = HIGHS_TOKENS
    exponent = log2(solves[large] / solves[small]) / log2(large / small)
    for tokens, seconds in curves.items():
        budget = tokens // BUDGET_DIVISOR
        note = f"CPU s; curve: all budgets 1..{budget}; HiGHS: budget {budget} alone"
        name, other = "HiGHS x-form", solves.get(tokens)
        if other is None:
            name += " (extrapolated)"
            other = solves[large] * (tokens / large) ** exponent
            note += f", not run but extrapolated as T^{exponent:.2f} from T = {small} and {large}"
        yield "optimum curve, one head", tokens, seconds, name, other, other / seconds, note


def _long_head(fixed):
    """The curve, one budget against it, and an interval against that, of a longer head."""
    tokens, budget = len(fixed), len(fixed) // BUDGET_DIVISOR
    curve, value = _time_curve(fixed, 2 if tokens <= FLOW_TOKENS else 1)
    note = f"CPU s; all budgets 1..{budget}"
    yield "optimum curve, one head", tokens, curve, "", _NAN, _NAN, note

    assert optimum_at(fixed, budget).value == value, "one budget and the curve disagree"
    one = min(_cpu_seconds(optimum_at, fixed, budget) for _ in range(5))
    note = f"CPU s; budget {budget} alone, same certificate"
    yield "optimum, one budget", tokens, one, "optimum curve", curve, curve / one, note

    interval = optimum_interval(fixed, budget)
    assert interval.lower <= value <= interval.upper, "the interval misses the optimum"
    seconds = min(_cpu_seconds(optimum_interval, fixed, budget) for _ in range(3))
    note = f"CPU s; certified relative gap {interval.relative_gap:.1e}"
    yield "interval, one budget", tokens, seconds, "optimum, one budget", one, one / seconds, note


def _against_flow(fixed):
    """One budget against OR-tools' min-cost flow with one node per token and per row."""
    budget = len(fixed) // BUDGET_DIVISOR
    flow, value = _time_flow(fixed, budget)
    assert optimum_at(fixed, budget).value == value, "OR-tools and one budget disagree"
    one = min(_cpu_seconds(optimum_at, fixed, budget) for _ in range(5))
    note = f"CPU s; budget {budget} alone; OR-tools: solve only, without building the graph"
    return "optimum, one budget", len(fixed), one, "OR-tools flow", flow, flow / one, note


def _time_curve(fixed, runs):
    """CPU seconds of the curve up to 20 % (best of some runs), and the optimum at 20 %."""
    budget = len(fixed) // BUDGET_DIVISOR
    optimum_curve(fixed[:256, :256], 256 // BUDGET_DIVISOR)
    values = []
    seconds = min(
        _cpu_seconds(lambda: values.append(optimum_curve(fixed, budget).values[-1]))
        for _ in range(runs)
    )
    return seconds, int(values[-1])


def _time_highs(problem, linprog):
    """CPU seconds of one HiGHS solve, and its optimum without the rows' own entries.

    Best of 2 when a solve is short; longer ones are run once, as noise is small against them.
    """
    found = []

    def solve():
        found.append(linprog(**problem, bounds=(0, 1), method="highs"))

    seconds = _cpu_seconds(solve)
    if seconds < 2:
        seconds = min(seconds, _cpu_seconds(solve))
    return seconds, -found[-1].fun


def _time_flow(fixed, budget):
    """CPU seconds of one OR-tools solve, and its optimum with the rows' own entries.

    k-1 units from row 1 to the end; token j is a node that row j+1 may enter once and that leads
    to every later row q, at the cost of minus what rows j+1 .. q-1 give it.
    """
    from ortools.graph.python import min_cost_flow

    tokens = len(fixed)
    j, q = np.triu_indices(tokens, 2)
    q = np.append(q, np.full(tokens - 1, tokens))
    j = np.append(j, np.arange(tokens - 1))
    sums = np.cumsum(np.tril(fixed, -1), axis=0)
    steps, keys = np.arange(1, tokens), np.arange(tokens - 1)
    tail = np.concatenate([steps, keys + 1, tokens + 1 + j])
    head = np.concatenate([steps + 1, tokens + 1 + keys, q])
    capacity = np.concatenate([np.full(tokens - 1, budget - 1), np.ones(tokens - 1 + j.size)])
    cost = np.concatenate([np.zeros(2 * (tokens - 1), dtype=np.int64), -sums[q - 1, j]])
    flow = min_cost_flow.SimpleMinCostFlow()
    flow.add_arcs_with_capacity_and_unit_cost(tail, head, capacity.astype(np.int64), cost)
    flow.set_nodes_supplies(np.array([1, tokens]), np.array([budget - 1, 1 - budget]))
    seconds = _cpu_seconds(flow.solve)
    return seconds, int(fixed.trace()) - flow.optimal_cost()


def _cpu_seconds(function, *arguments):
    start = process_time()
    function(*arguments)
    return process_time() - start


def _x_form(rows, budget, coo_array):
    """The linear programme with a variable for each older key j of row t: linprog's arguments.

    At most budget - 1 older keys in each row, and none that the row before did not have.
    """
    tokens = len(rows)
    t, j = np.tril_indices(tokens, -1)
    number = np.zeros((tokens, tokens), dtype=np.int64)
    number[t, j] = np.arange(t.size)
    again = np.flatnonzero(j < t - 1)
    row = np.concatenate([t, np.tile(tokens + np.arange(again.size), 2)])
    column = np.concatenate([number[t, j], again, number[t[again] - 1, j[again]]])
    sign = np.concatenate([np.ones(t.size + again.size), -np.ones(again.size)])
    limit = np.concatenate([np.full(tokens, budget - 1.0), np.zeros(again.size)])
    matrix = coo_array((sign, (row, column)), shape=(limit.size, t.size)).tocsr()
    return {"c": -rows[t, j], "A_ub": matrix, "b_ub": limit}


def _softmax_rows(tokens, seed=0):
    """Rows [T, T] of a made-up head: noise, sinks, recency and tokens of lasting importance."""
    rng = np.random.default_rng(seed)
    lag = np.subtract.outer(np.arange(tokens), np.arange(tokens))
    logits = rng.normal(size=(tokens, tokens)) + 1.2 * rng.normal(size=tokens)
    logits -= 0.8 * np.log1p(np.maximum(lag, 0))
    logits[:, :4] += 3.0
    logits[lag < 0] = -np.inf
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _highs():
    """scipy's linprog and sparse matrices, imported here because nothing else needs them."""
    try:
        from scipy.optimize import linprog
        from scipy.sparse import coo_array
    except ImportError:
        raise MissingDependency(
            "scipy is not installed",
            where="bench optimum",
            expected="scipy, for the HiGHS baseline",
            hint="Run: pip install scipy.",
        ) from None
    return linprog, coo_array
