"""The published measurements against the model, as one document: ``docs/results/costs.json``."""

from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from h2o_theory.costs.claims import CLAIMS, above_the_roofline, budget_alone, decompositions, ratios
from h2o_theory.costs.estimate import estimate
from h2o_theory.costs.fit import (
    HoldOut,
    a100_constants,
    best_design,
    constants_for,
    hold_out,
    t4_constants,
)
from h2o_theory.costs.memory import largest_batch, peak_memory
from h2o_theory.costs.published import A100_LOGS, CELLS, T4_LOGS, LogRow, TableCell
from h2o_theory.costs.units import GIB

__all__ = ["ASSUMED", "published_document", "worst_errors"]

TARGETS = {"A100": 0.10, "T4": 0.25, "memory": 0.10}

ASSUMED = (
    "T4: bandwidth shares, passes over scores and bookkeeping are those fitted on the A100",
    "T4: the link is the shorter side wherever attention is computed on the host",
    "T4, rows with 20 % of the weights on the GPU: heavy hitters as in the run of the same length "
    "of table 3, as the file names do not say the ratio",
    "T4, all six rows: the log says projected: True (fewer batches were run and the times scaled)",
    "memory: 2 score matrices of the prompt at the peak, 4 in the three T4 rows of table 3, whose "
    "version of the code takes the softmax in float32",
    "DeepSpeed and Accelerate: the share of the link is set on one cell of table 3 each",
)


def worst_errors(found: Sequence[HoldOut], target: float) -> dict[str, Any]:
    """Over all choices: how many stay within a target, and the median and worst error."""
    table = {}
    for what in ("prefill", "decode", "throughput"):
        errors = [one.worst(what) for one in found]
        table[what] = {
            "within_target": sum(error <= target for error in errors),
            "choices": len(errors),
            "median": round(median(errors), 4),
            "worst": round(max(errors), 4),
        }
    return table


def published_document() -> dict[str, Any]:
    """Fit, errors held out, cells, memory, ratios and their factors: all numbers, plain."""
    a100, t4 = hold_out(A100_LOGS, 4), hold_out(T4_LOGS, 3)
    return {
        "name": "costs",
        "targets": TARGETS,
        "assumed": list(ASSUMED),
        "constants": {"A100": _plain(a100_constants()), "T4": _plain(t4_constants())},
        "fitted_on": [A100_LOGS[i].name for i in best_design()],
        "hold_out": {
            "A100": {
                "rows": [row.name for row in A100_LOGS],
                "summary": worst_errors(a100, TARGETS["A100"]),
                "choices": [_choice(one) for one in a100],
            },
            "T4": {
                "rows": [row.name for row in T4_LOGS],
                "summary": worst_errors(t4, TARGETS["T4"]),
                "choices": [_choice(one) for one in t4],
            },
        },
        "logs": [_log(row) for row in (*A100_LOGS, *T4_LOGS)],
        "cells": [_cell(cell) for cell in CELLS if cell.case is not None],
        "above_the_roofline": [
            {"cell": cell.name, "printed": cell.printed, "at_most": round(bound, 2)}
            for cell, bound in above_the_roofline()
        ],
        "claims": [
            {
                "claim": claim.name,
                "found_in": [one.name for one in ratios(claim.over) if claim.agrees(one)],
                "ratios": [_plain(one) for one in ratios(claim.over)],
            }
            for claim in CLAIMS
        ],
        "decompositions": [
            {
                "ratio": one.name,
                "measured": round(one.measured, 3),
                "modelled": round(one.modelled, 3),
                "factors": {name: round(factor, 3) for name, factor in one.all_factors},
                "by_budget": round(one.by_budget, 3),
                "budget_share_of_log": round(one.budget_share, 3),
            }
            for one in decompositions()
        ],
        "budget_alone": _alone(),
    }


def _plain(value: Any) -> dict[str, Any]:
    numbers = {}
    for name, item in asdict(value).items():
        if isinstance(item, float):
            item = None if item == float("inf") else float(f"{item:.6g}")
        numbers[name] = item
    return numbers


def _choice(one: HoldOut) -> dict[str, Any]:
    errors = {
        what: [round(error, 4) for error in getattr(one, what)]
        for what in ("prefill", "decode", "throughput")
    }
    return {"fitted": list(one.fitted), "tested": list(one.tested), **errors}


def _log(row: LogRow) -> dict[str, Any]:
    got = estimate(row.case, constants_for(row.case.hardware.name))
    return {
        "run": row.name,
        "hardware": row.hardware,
        "projected": row.projected,
        "measured": {
            "prefill": round(row.seconds[0], 3),
            "decode": round(row.seconds[1], 3),
            "tokens_per_second": round(row.tokens_per_second, 3),
            "peak_gib": round(row.peak, 3),
        },
        "model": {
            "prefill": round(got.prefill.seconds, 3),
            "decode": round(got.decode.seconds, 3),
            "tokens_per_second": round(got.tokens_per_second, 3),
            "peak_gib": round(peak_memory(row.case).device / GIB, 3),
        },
        "bound": {"prefill": got.prefill.bound, "decode": got.decode.bound},
    }


def _cell(cell: TableCell) -> dict[str, Any]:
    case = cell.case
    assert case is not None
    got = estimate(case, constants_for(case.hardware.name))
    return {
        "cell": cell.name,
        "table": cell.table,
        "printed": cell.printed,
        "model": round(got.tokens_per_second, 3),
        "error": round(got.tokens_per_second / cell.value - 1, 4),
        "bound": got.decode.bound,
        "batch": cell.batch,
        "batch_that_fits": largest_batch(case),
    }


def _alone() -> list[dict[str, Any]]:
    found = []
    for base in CELLS:
        if base.table != 3 or base.system == "h2o":
            continue
        key = (base.model, base.generate)
        h2o = next(
            cell
            for cell in CELLS
            if cell.system == "h2o" and cell.table == 3 and (cell.model, cell.generate) == key
        )
        case, small = base.case, h2o.case
        assert case is not None and small is not None
        equal, larger = budget_alone(case, small.policy)
        found.append(
            {
                "in_the_schedule_of": base.name,
                "equal_batch": round(equal, 3),
                "batch_grown": round(larger, 3),
            }
        )
    return found
