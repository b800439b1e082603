"""Speed of lazy greedy on facility location, against naive greedy and two other libraries.

All times are CPU seconds of this process, best of several runs after a warm-up. submodlib and
apricot are compared where they are installed, on the same similarities, and must reach the same
value; where they are not, the table says so.
"""

from importlib import import_module
from importlib.util import find_spec
from itertools import count
from time import process_time

import numpy as np
import pandas as pd

from h2o_theory.submodular import (
    facility_location,
    greedy,
    key_similarity,
    lazy_greedy,
    prefix_bound,
)

__all__ = ["run"]

ELEMENTS, CHOSEN, DIMENSION, CENTRES = 1000, 50, 16, 60
_COLUMNS = ["benchmark", "size", "seconds", "baseline", "baseline_seconds", "ratio", "note"]
_NAN = float("nan")
_NAME = f"lazy greedy, facility location, k = {CHOSEN}"


def run(progress=None):
    """Measure lazy greedy at n = 1000, k = 50, and its baselines.

    Parameters
    ----------
    progress : callable (done, total, label), optional
        Called after each measurement.

    Returns
    -------
    pandas.DataFrame
        benchmark, size (n), seconds, baseline (name or ""), baseline_seconds (NaN if none),
        ratio (baseline_seconds / seconds), note. A ratio below 1 means that the other is quicker.
    """
    steps = count(1)

    def done():
        if progress:
            progress(next(steps), 4, "lazy greedy")

    similarity = _similarity()
    function = facility_location(similarity)
    lazy_greedy(function, CHOSEN)
    seconds, found = _best(lambda: lazy_greedy(function, CHOSEN), 9)
    done()
    proved = found.value / prefix_bound(function, found.members, CHOSEN)
    table = []

    def add(baseline, other, note):
        table.append((_NAME, ELEMENTS, seconds, baseline, other, other / seconds, note))

    naive, plain = _best(lambda: greedy(function, CHOSEN), 3)
    done()
    assert plain.members == found.members, "lazy and naive greedy disagree"
    share = found.evaluations / plain.evaluations
    add(
        "naive greedy",
        naive,
        f"CPU s; {share:.1%} of the gains; at least {proved:.3f} of the optimum, proved",
    )
    for name, solve in (("submodlib", _submodlib), ("apricot", _apricot)):
        if find_spec(name) is None:
            add(f"{name} (not installed)", _NAN, f"pip install {_PACKAGES[name]}, then run again")
        else:
            other, value, note = solve(similarity)
            assert abs(value - found.value) < 1e-3 * found.value, f"{name} disagrees"
            add(name, other, f"{note}; value {value / found.value:.6f} of ours")
        done()
    return pd.DataFrame(table, columns=_COLUMNS)


_PACKAGES = {"submodlib": "submodlib-py", "apricot": "apricot-select"}


def _similarity():
    """Of keys around some centres: (1 + cos) / 2, [n, n]."""
    rng = np.random.default_rng(0)
    centres = 2.0 * rng.normal(size=(CENTRES, DIMENSION))
    keys = centres[rng.integers(0, CENTRES, ELEMENTS)] + rng.normal(size=(ELEMENTS, DIMENSION))
    return key_similarity(keys)


def _submodlib(similarity):
    """CPU seconds of its lazy greedy, the value of its set under our function, and a note."""
    function = import_module("submodlib").FacilityLocationFunction(
        n=ELEMENTS, mode="dense", sijs=similarity, separate_rep=False
    )

    def solve():
        return function.maximize(
            budget=CHOSEN, optimizer="LazyGreedy", stopIfZeroGain=False, show_progress=False
        )

    solve()
    seconds, chosen = _best(solve, 9)
    members = [j for j, _ in chosen]
    return (
        seconds,
        facility_location(similarity).value(members),
        "CPU s; C++ in float32, solve only",
    )


def _apricot(similarity):
    """CPU seconds of its lazy greedy, the value of its set under our function, and a note."""
    selection = import_module("apricot").FacilityLocationSelection

    def solve():
        return selection(CHOSEN, metric="precomputed", optimizer="lazy").fit(similarity)

    solve()
    seconds, fitted = _best(solve, 3)
    members = fitted.ranking.tolist()
    return seconds, facility_location(similarity).value(members), "CPU s; its fit, as users call it"


def _best(function, runs):
    """Least CPU seconds of several runs, and the last result."""
    least = float("inf")
    for _ in range(runs):
        start = process_time()
        found = function()
        least = min(least, process_time() - start)
    return least, found
