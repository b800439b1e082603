"""Speed of the exact optimum: the whole budget curve of one head against one HiGHS solve.

All times are CPU seconds of this process, best of several runs after a warm-up, so that other
load on the machine matters little. The comparison favours HiGHS: it finds one budget, the solver
here all budgets up to that one.
"""

from itertools import count
from math import log2
from time import process_time

import numpy as np
import pandas as pd

from h2o_theory.errors import MissingDependency
from h2o_theory.optimum import optimum_curve, to_fixed_point

__all__ = ["run"]

CURVE_TOKENS = (256, 512, 1024)
HIGHS_TOKENS = (256, 512)
BUDGET_DIVISOR = 5
_COLUMNS = ["benchmark", "size", "seconds", "baseline", "baseline_seconds", "ratio", "note"]


def run(progress=None):
    """Measure the curve at T = 256, 512, 1024 up to k = 20 %, and HiGHS at T = 256 and 512.

    HiGHS at T = 1024 is not run (it takes minutes): its time is extrapolated with the exponent
    fitted to the two sizes measured, and the note says so.

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
    steps, total = count(1), len(CURVE_TOKENS) + len(HIGHS_TOKENS)
    linprog, coo_array = _highs()
    rows = {tokens: _softmax_rows(tokens) for tokens in CURVE_TOKENS}
    curves, values, solves = {}, {}, {}
    for tokens in CURVE_TOKENS:
        curves[tokens], values[tokens] = _time_curve(rows[tokens])
        if progress:
            progress(next(steps), total, "optimum against HiGHS")
    for tokens in HIGHS_TOKENS:
        problem = _x_form(rows[tokens], tokens // BUDGET_DIVISOR, coo_array)
        solves[tokens], value = _time_highs(problem, linprog)
        value += rows[tokens].trace()
        assert abs(value - values[tokens]) < 1e-5, "HiGHS and the curve disagree"
        if progress:
            progress(next(steps), total, "optimum against HiGHS")
    return pd.DataFrame(_table(curves, solves), columns=_COLUMNS)


def _table(curves, solves):
    """One row for each size, with HiGHS extrapolated where it was not run."""
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


def _time_curve(rows):
    """CPU seconds of the curve up to 20 % (best of 7), and the optimum at 20 %."""
    fixed, budget = to_fixed_point(rows), len(rows) // BUDGET_DIVISOR
    curve = optimum_curve(fixed, budget)
    seconds = min(_cpu_seconds(optimum_curve, fixed, budget) for _ in range(7))
    return seconds, curve.values[-1] / 2.0**curve.fraction_bits


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
