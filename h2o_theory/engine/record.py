"""One line of the results table: the measures of one task on one kv_head."""

import numpy as np

from h2o_theory.engine.run import audit
from h2o_theory.optimum import FRACTION_BITS

__all__ = ["record"]

_UNIT = 2.0**-FRACTION_BITS


def record(task, context, schedule, measure, totals, optima, sparsity):
    """The results of a task as a dict; ratios are NaN where there is nothing to divide by.

    ``optima`` is None where the optimum was not asked for.
    """
    tokens = context.tokens
    largest, average, sizes = audit(schedule, context)
    n_rows, retained = len(sizes), measure.rows()
    is_full = sizes == task.budget
    victims = np.flatnonzero(schedule < tokens)
    ages = schedule[victims] - victims
    topk = totals.topk(task.budget)
    reference = task.policy.kind == "reference"
    return {
        "layer": context.layer,
        "kv_head": context.kv_head,
        "policy": task.policy.name,
        "parameters": task.policy.describe(task.budget),
        "budget": task.budget_text,
        "budget_tokens": task.budget,
        "prefill": task.prefill,
        "seed": task.seed,
        "level": "open",
        "n_rows": n_rows,
        "n_rows_full": int(is_full.sum()),
        "retained_mass": float(retained.mean()),
        "retained_mass_full": float(retained[is_full].mean()) if is_full.any() else np.nan,
        "full_mass": totals.full() * _UNIT / n_rows,
        **_against_the_optimum(task, measure.total_fixed(), optima, totals.full(), n_rows),
        "topk_mass": topk * _UNIT / n_rows,
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


def _against_the_optimum(task, value, optima, full, n_rows):
    """Columns of the optimum; what is lost is counted from ``full``, the mass of whole rows, so
    that what a sink without a key takes of a row is nobody's loss."""
    columns = ("optimum_mass", "approximation_ratio", "lost_mass_ratio")
    if optima is None:
        return dict.fromkeys(columns, np.nan)
    best = optima.best[task.prefill, task.budget]
    assert value <= best, "a policy beat the exact optimum"
    assert not task.policy.needs_optimum or value == best, "the optimum's schedule lost its value"
    lost, least = (full - value) * _UNIT, (full - best) * _UNIT
    reference = task.policy.kind == "reference"
    return {
        "optimum_mass": best * _UNIT / n_rows,
        "approximation_ratio": np.nan if reference or best == 0 else value / best,
        "lost_mass_ratio": lost / least if least > 1e-9 * n_rows and not reference else np.nan,
    }
