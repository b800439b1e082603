"""One line of the results table: the measures of one run on one kv_head."""

from typing import Any

import numpy as np

from h2o_theory.annotations import Head
from h2o_theory.attention import SparsityCount
from h2o_theory.engine.admission import Run
from h2o_theory.engine.bounds import Optima
from h2o_theory.engine.measure import HeadTotals, Measure
from h2o_theory.engine.run import audit
from h2o_theory.optimum import UNITS

__all__ = ["measured"]


def measured(
    run: Run,
    head: Head,
    schedule: np.ndarray,
    measure: Measure,
    totals: HeadTotals,
    optima: Optima | None,
    sparsity: SparsityCount,
) -> dict[str, Any]:
    """The results of a run as a dict; ratios are NaN where there is nothing to divide by.

    ``optima`` is None where the optimum was not asked for.
    """
    tokens, budget = run.length, run.tokens[head]
    largest, average, sizes = audit(schedule, run.context(*head))
    n_rows, retained = len(sizes), measure.rows()
    is_full = sizes == budget
    victims = np.flatnonzero(schedule < tokens)
    ages = schedule[victims] - victims
    topk = totals.topk(budget)
    reference = not run.policy.follows_budget
    return {
        "layer": head[0],
        "kv_head": head[1],
        **run.columns(head),
        "loop": "open",
        "n_rows": n_rows,
        "n_rows_full": int(is_full.sum()),
        "retained_mass": float(retained.mean()),
        "retained_mass_full": float(retained[is_full].mean()) if is_full.any() else np.nan,
        "full_mass": totals.full() / UNITS / n_rows,
        **_against_the_optimum(run, budget, measure.total_fixed(), optima, totals.full(), n_rows),
        "topk_mass": topk / UNITS / n_rows,
        "topk_bound_ratio": np.nan if reference or topk == 0 else measure.total_fixed() / topk,
        "output_error": measure.output_error(),
        "kl": measure.divergence(),
        "hit_rate": measure.hits() / totals.accesses,
        "realised_budget_max": largest,
        "realised_budget_mean": average,
        "victim_age_mean": float(ages.mean()) if ages.size else np.nan,
        "sparsity_causal": sparsity.causal_share,
        "sparsity_square": sparsity.square_share,
    }


def _against_the_optimum(run, budget, value, optima, full, n_rows):
    """Columns of the optimum; what is lost is counted from ``full``, the mass of whole rows, so
    that what a sink without a key takes of a row is nobody's loss."""
    columns = ("optimum_mass", "approximation_ratio", "lost_mass_ratio")
    if optima is None:
        return dict.fromkeys(columns, np.nan)
    best = optima.best[run.prefill, budget]
    assert value <= best, "a policy beat the exact optimum"
    assert not run.policy.needs_optimum or value == best, "the optimum's schedule lost its value"
    lost, least = (full - value) / UNITS, (full - best) / UNITS
    reference = not run.policy.follows_budget
    return {
        "optimum_mass": best / UNITS / n_rows,
        "approximation_ratio": np.nan if reference or best == 0 else value / best,
        "lost_mass_ratio": lost / least if least > 1e-9 * n_rows and not reference else np.nan,
    }
