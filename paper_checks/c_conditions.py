"""Part C, the conditions of the guarantee (D.23 to D.28), for each reading of f, on recordings.

The readings of f are those of :mod:`h2o_theory.submodular.readings`: the attention of the last row
or accumulated over rows, with the full cache or as the cache has it.
"""

import functools

import numpy as np

from h2o_theory.guarantee import measure_guarantee
from h2o_theory.policies import make_policy
from h2o_theory.submodular import READINGS, make_reading, refute
from h2o_theory.testing import random_rows, schedule_of
from paper_checks.c_lemmas import step_fails
from paper_checks.finding import ASSUMING, FAILS, HOLDS, INCONSISTENT, CheckFinding, judge
from paper_checks.recorded import committed_trace, described

__all__ = ["def_d23", "def_d25", "def_d28", "measured"]

SHARE = 0.1
"""Budget of the measured schedules, as a share of the tokens; the swap rule without a window."""
MODULAR = ("row", "row_cached", "accumulated", "accumulated_cached")


@functools.cache
def measured(reading):
    """The guarantee along the swap rule's own schedule, on four heads.

    f~ is f for all readings but ``accumulated``, where it is what the cache itself accumulates.
    """
    trace = committed_trace()
    budget = int(SHARE * trace.tokens) + 1
    layers = trace.layers[::2]
    return measure_guarantee(trace, "heavy", budget, reading, layers=layers, kv_heads=[0])


def _where():
    trace = committed_trace()
    return (
        f"first kv_head of every other layer, {described()}; accumulated-score eviction without a "
        f"window, k = {int(SHARE * trace.tokens)}; every step after the cache is full"
    )


def def_d23() -> CheckFinding:
    """Is f(X) >= f(Y) for Y in X, for every reading of f, at every cache?"""
    counterexample, tried = None, 0
    rng = np.random.default_rng(0)
    recorded = committed_trace().rows(10, 0, 0, 10)[:, :, :10]
    for rows in (recorded, *(random_rows(rng, 2, 10) for _ in range(6))):
        schedule = schedule_of(make_policy("heavy"), rows, 4)
        for reading in READINGS:
            function = make_reading(reading, rows, evicted_at=schedule)
            for step in (4, 7, 9):
                cache = np.flatnonzero((schedule >= step) & (np.arange(10) < step))
                tried += 1
                found = refute(function.at(cache, step), "monotone")
                if found.counterexample and counterexample is None:
                    counterexample = {"reading": reading, "case": str(found.counterexample)}
    verdict, _ = judge(counterexample, None)
    return CheckFinding(
        verdict,
        "Every reading of f in terms of attention received is a sum of non-negative numbers, or an "
        "increasing function of such sums, so it is monotone for any cache and any approximation "
        "f~ of this kind.",
        f"{tried} functions on up to 10 tokens, all subsets of each: readings "
        f"{', '.join(READINGS)}, on recorded and random rows",
        {},
        counterexample,
    )


def def_d25() -> CheckFinding:
    """Smallest theta with f_i(S_i) >= (1 - theta) f_(i-1)(S_i), by reading."""
    worst = {name: float(measured(name).steps.theta.max()) for name in MODULAR}
    mean = {name: float(measured(name).steps.theta.mean()) for name in MODULAR}
    tokens = committed_trace().tokens
    premise = 1 / (10 * tokens)
    steps = measured("row").steps
    at = int(steps.theta.argmax())
    case = steps.iloc[at]
    counterexample = None
    if worst["row"] > premise:
        counterexample = {
            "reading": "attention of the last row",
            "layer, step i": [int(case.layer), int(case.step) + 1],
            "f_(i-1)(S_i)": float(steps.value[at - 1]),
            "f_i(S_i)": float(case.carried),
            "smallest theta": float(case.theta),
            "alpha/(10n) with alpha = 1": premise,
        }
    accumulating = max(worst["accumulated"], worst["accumulated_cached"])
    verdict, remedy_holds = judge(
        counterexample, None if accumulating <= premise else worst, remedied=ASSUMING
    )
    return CheckFinding(
        verdict,
        "Met with theta = 0 by accumulated attention, which only grows. For the attention of a "
        f"single row the smallest theta is {worst['row']:.2f} at the worst step and "
        f"{mean['row']:.2f} on average ({worst['row_cached']:.2f} and {mean['row_cached']:.2f} as "
        f"the cache has it), against the {premise:.1e} that the theorem asks for (alpha = 1).",
        _where(),
        {"largest theta by reading": worst},
        counterexample,
        remedy_holds,
    )


def def_d28() -> CheckFinding:
    """Condition 2 as defined and as the proof of Lemma D.29 uses it."""
    defined = step_fails(rule=True, condition="defined")
    used = step_fails(rule=True, condition="used")
    table = {
        name: {
            "as defined, opt_i >= (1-gamma) opt_(i-1)": float(measured(name).steps.gamma.max()),
            "as used, opt_i >= (1-gamma) opt_(i+1)": float(measured(name).steps.gamma_used.max()),
        }
        for name in MODULAR
    }
    growing = table["accumulated"]["as used, opt_i >= (1-gamma) opt_(i+1)"]
    tokens = committed_trace().tokens
    return CheckFinding(
        INCONSISTENT if defined and used is None else HOLDS if defined is None else FAILS,
        "D.28 bounds how fast opt may shrink; the proof of Lemma D.29 needs a bound on how fast it "
        "may grow, and the induction step fails with the former and holds with the latter. "
        "Accumulated attention never shrinks (gamma = 0 as defined), but grows: the gamma that is "
        f"used must be {growing:.4f}, {growing * 10 * tokens:.0f} times alpha/(10n) with alpha = "
        "1.",
        "the induction step over small integers as in lemma-D.29; " + _where(),
        {
            "smallest gamma by reading": table,
            "two numbers that tell them apart": "opt_1 = 1, opt_2 = 2: as defined gamma = 0, as "
            "used gamma = 1/2",
        },
        defined,
    )
