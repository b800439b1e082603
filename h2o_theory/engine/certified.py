"""The exact optimum of every head of a trace, proved, and the best split of a total budget."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from h2o_theory.budgets import resolve_even
from h2o_theory.engine.arguments import chosen_heads, thread_count, to_prefill
from h2o_theory.engine.rows import HeadRows
from h2o_theory.engine.threads import in_threads
from h2o_theory.optimum import (
    UNITS,
    check_certificate,
    optimum_curve,
    optimum_interval,
    pooled_bound,
    split_budget,
    to_fixed_point,
)

__all__ = ["CertifiedOptimum", "certified_interval", "certified_optimum"]

POOL_BYTES = 2 * 2**30
"""Rows of all heads in single precision up to this size are held at once for the pooled bound."""


@dataclass(frozen=True, eq=False)
class CertifiedOptimum:
    """What :func:`certified_optimum` found, as tidy tables.

    Attributes
    ----------
    heads : pandas.DataFrame
        One row per layer, kv_head and budget: ``optimum_mass`` and ``bound_mass`` (means per
        scored row), the integers ``value`` and ``bound`` in units of 2^-36, ``gap`` (bound -
        value), ``certificate`` (``optimal`` if feasibility, value and bound were recomputed from
        the rows and agree, else what is wrong), ``slot_price`` (mass that one more slot in every
        row would add at most, per scored row).
    splits : pandas.DataFrame
        One row per budget, for a total of (number of heads) x budget: mean retained mass with the
        ``even_mass`` split, the exact best static split ``split_mass``, the bound ``pooled_mass``
        on any division, also one that changes by row (NaN where it was not computed), and the
        ``smallest`` and ``largest`` budget that the best split gives a head.
    allocation : pandas.DataFrame
        One row per layer, kv_head and budget: ``even_tokens``, ``split_tokens`` and the optimum's
        retained mass at each.
    curves : dict
        ``{(layer, kv_head): BudgetCurve}``.
    """

    heads: pd.DataFrame
    splits: pd.DataFrame
    allocation: pd.DataFrame
    curves: dict


def certified_optimum(
    trace,
    budgets,
    *,
    prefill=0,
    layers=None,
    kv_heads=None,
    pooled=True,
    workers=None,
    progress=None,
):
    """Solve every head of a trace exactly, check every certificate, and split the total budget.

    For each head the optimum J_OPT(k) of all budgets (:func:`~h2o_theory.optimum.optimum_curve`);
    for each budget asked for a schedule whose value and dual bound are recomputed from the rows
    (:func:`~h2o_theory.optimum.check_certificate`); for H heads and the total H k, the static
    split of largest retained mass (:func:`~h2o_theory.optimum.split_budget`). Curves are solved
    further where a head wants more than they cover, so the split is exact.

    Parameters
    ----------
    trace : Trace
    budgets : str or list
        As :func:`h2o_theory.replay` takes them.
    prefill : int
    layers, kv_heads : list of int, optional
        All by default.
    pooled : bool
        Whether to bound what budgets that move between heads could retain. It holds the rows of
        all heads in single precision (relative rounding 6e-8), 4 H T^2 bytes, and is left out
        where that exceeds 2 GiB.
    workers : int, optional
        Threads; the number of cores by default.
    progress : callable (done, total, label), optional

    Returns
    -------
    CertifiedOptimum

    Raises
    ------
    BadBudget, OutOfRange, BadArgument
        Before any work is done.

    Notes
    -----
    O(K T^2) time and about 40 T^2 bytes per head at work, K at least twice the largest budget.
    """
    heads, asked, workers = _checked(trace, budgets, prefill, layers, kv_heads, workers)
    keep = pooled and 4 * len(heads) * trace.tokens**2 <= POOL_BYTES
    largest = max(asked.values())

    def solve(head):
        rows = HeadRows(trace, *head).square()
        fixed = to_fixed_point(rows)
        most = min(trace.tokens, 2 * largest)
        curve = optimum_curve(fixed, most, budgets=asked.values(), prefill=prefill)
        found = [_head_row(head, text, fixed, curve.schedules[k]) for text, k in asked.items()]
        return curve, found, _in_single_precision(rows, fixed, prefill) if keep else None

    solved = in_threads(solve, heads, workers, progress, "optimum")
    curves = dict(zip(heads, (curve for curve, _, _ in solved), strict=True))
    splits = {}
    for text, k in asked.items():
        splits[text] = _exact_split(trace, curves, k * len(heads), workers, progress)
    table = pd.DataFrame([row for _, rows, _ in solved for row in rows])
    pool = None
    if keep:
        pool = (
            np.stack([rows for _, _, (rows, _) in solved]),
            sum(lost for _, _, (_, lost) in solved),
        )
    summary = []
    for done, (text, k) in enumerate(asked.items(), start=1):
        summary.append(_split_row(text, k, splits[text], pool, prefill))
        if progress and keep:
            progress(done, len(asked), "pooled bound")
    return CertifiedOptimum(table, pd.DataFrame(summary), _allocation(heads, splits), curves)


def certified_interval(
    trace,
    budgets,
    *,
    prefill=0,
    layers=None,
    kv_heads=None,
    time_limit=None,
    workers=None,
    progress=None,
):
    """Bound the optimum of every head from both sides, for traces too long to solve exactly.

    The table is that of :attr:`CertifiedOptimum.heads`, with the value of the best schedule found
    and the bound that no schedule exceeds; both are recomputed from the rows as they are reported,
    so ``gap`` is honest whatever the search did. ``certificate`` is the status of
    :func:`~h2o_theory.optimum.optimum_interval`.

    Parameters
    ----------
    trace, budgets, prefill, layers, kv_heads, workers, progress
        As :func:`certified_optimum` takes them.
    time_limit : float, optional
        Seconds for each head and budget after which no further step is begun.

    Returns
    -------
    pandas.DataFrame

    Raises
    ------
    BadBudget, OutOfRange, BadArgument
        Before any work is done.

    Notes
    -----
    O(T^2) time per step, about 12 T^2 bytes per head at work. The bounds are exact for the rows
    in single precision, which differ from the recorded ones by 6e-8 of each entry at most.
    """
    heads, asked, workers = _checked(trace, budgets, prefill, layers, kv_heads, workers)

    def bound(head):
        rows = HeadRows(trace, *head).square().astype(np.float32)
        found = []
        for text, k in asked.items():
            interval = optimum_interval(rows, k, prefill=prefill, time_limit=time_limit)
            found.append(
                _row(head, text, interval.schedule, interval.lower, interval.upper, trace.tokens)
                | {"certificate": interval.status}
            )
        return found

    solved = in_threads(bound, heads, workers, progress, "optimum interval")
    return pd.DataFrame([row for rows in solved for row in rows])


def _checked(trace, budgets, prefill, layers, kv_heads, workers):
    """The heads, ``{budget as asked: tokens}`` and the number of threads."""
    to_prefill(prefill, trace.tokens)
    threads, heads = thread_count(workers), chosen_heads(trace, layers, kv_heads)
    asked = resolve_even(budgets, trace.tokens)
    return heads, asked, threads


def _head_row(head, text, fixed, schedule):
    certificate = check_certificate(fixed, schedule)
    row = _row(head, text, schedule, certificate.value, certificate.bound, len(fixed))
    return row | {"certificate": certificate.message}


def _row(head, text, schedule, value, bound, tokens):
    scored = tokens - schedule.prefill
    return {
        "layer": head[0],
        "kv_head": head[1],
        "budget": text,
        "budget_tokens": schedule.budget,
        "n_rows": scored,
        "optimum_mass": value / UNITS / scored,
        "bound_mass": bound / UNITS / scored,
        "value": value,
        "bound": bound,
        "gap": bound - value,
        "slot_price": sum(schedule.prices.tolist()) / UNITS / scored,
    }


def _exact_split(trace, curves, total, workers, progress):
    """The best split; curves of heads that want more than they cover are solved further."""
    while True:
        split = split_budget(list(curves.values()), total)
        if split.exact:
            return split
        short = [list(curves)[index] for index in split.limited]

        def extend(head):
            old = curves[head]
            fixed = to_fixed_point(HeadRows(trace, *head).square())
            most = min(trace.tokens, 2 * old.values.size)
            return optimum_curve(fixed, most, budgets=old.schedules.keys(), prefill=old.prefill)

        longer = in_threads(extend, short, workers, progress, f"longer curves for {total} entries")
        curves.update(zip(short, longer, strict=True))


def _in_single_precision(rows, fixed, prefill):
    """Rows in float32, and by how much a schedule may retain more of ``fixed`` than of them.

    The split is about the rows in fixed point. A bound on the rounded rows is one on those only
    with every entry that was rounded down added to it.
    """
    single = rows.astype(np.float32)
    short = np.maximum(fixed - to_fixed_point(single), 0)
    return single, int(short[prefill:].sum())


def _split_row(text, budget, split, pool, prefill):
    even, best = split.retained_mass
    pooled_mass = np.nan
    if pool is not None:
        rows, lost = pool
        upper = pooled_bound(rows, split.total, prefill=prefill).upper + lost
        pooled_mass = upper / UNITS / max(split.n_scored, 1)
    return {
        "budget": text,
        "budget_tokens": budget,
        "total_tokens": split.total,
        "even_mass": even,
        "split_mass": best,
        "pooled_mass": pooled_mass,
        "smallest": int(split.budgets.min()),
        "largest": int(split.budgets.max()),
    }


def _allocation(heads, splits):
    rows = []
    for text, split in splits.items():
        scored = split.n_scored / len(heads)
        for index, (layer, kv_head) in enumerate(heads):
            rows.append(
                {
                    "layer": layer,
                    "kv_head": kv_head,
                    "budget": text,
                    "even_tokens": int(split.uniform_budgets[index]),
                    "split_tokens": int(split.budgets[index]),
                    "even_mass": int(split.uniform_values[index]) / UNITS / scored,
                    "split_mass": int(split.values[index]) / UNITS / scored,
                }
            )
    return pd.DataFrame(rows)
