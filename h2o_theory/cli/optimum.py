"""``h2o-theory optimum``: the exact optimum of every head, proved, and the best budget split."""

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from h2o_theory.budgets import parse_budgets
from h2o_theory.cli.common import (
    add_head_options,
    head_choice,
    print_json,
    print_table,
    say,
    shown_progress,
)
from h2o_theory.cli.provenance import provenance
from h2o_theory.engine import certified_interval, certified_optimum, ratio_intervals, replay
from h2o_theory.errors import BadArgument
from h2o_theory.policies import make_policy, parse_policies
from h2o_theory.report import refuse_existing, save_figure, save_results, summary_table
from h2o_theory.trace import open_trace

__all__ = ["add_options"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the verb and add its options."""
    parser.description = (
        "Solve every kv_head of a trace exactly, recompute each value and its dual "
        "bound from the rows, compare policies with it, and split the total budget over the "
        "heads as well as any static split can."
    )
    parser.epilog = "example: h2o-theory optimum traces/smollm2-135m-512 --budget 5%,10%,20%"
    parser.add_argument("trace", metavar="TRACE")
    parser.add_argument(
        "--budget", metavar="K,K,...", default="5%,10%,20%", help="default: %(default)s"
    )
    parser.add_argument(
        "--policy",
        metavar="P,P,...",
        default="h2o,recent,sink,tova,lru,greedy",
        help="policies to compare with the optimum; none to leave them out (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of random policies (default: 0)")
    parser.add_argument(
        "--interval",
        action="store_true",
        help="certified bounds from both sides in place of the exact optimum, and so of the "
        "policies' ratios: for long traces; no split",
    )
    parser.add_argument(
        "--time-limit", type=float, metavar="S", help="with --interval: seconds per head and budget"
    )
    parser.add_argument("--no-pooled", action="store_true", help="leave out the pooled bound")
    add_head_options(parser)
    parser.add_argument("--out", metavar="DIR", help="folder for all tables and the figure")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing folder")
    parser.add_argument("--json", action="store_true", help="all tables as JSON on stdout")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Solve, check, compare, split, print."""
    if arguments.time_limit is not None and not arguments.interval:
        raise BadArgument(
            "--time-limit needs --interval",
            got=arguments.time_limit,
            hint="The exact optimum has no time limit; add --interval for certified bounds.",
        )
    parse_budgets(arguments.budget)  # one number for all heads: no matrix and no rule
    if arguments.out:
        refuse_existing(arguments.out, arguments.overwrite)
    trace = open_trace(arguments.trace)
    with shown_progress() as progress:
        tables, figure = _compute(trace, arguments, progress)
    if arguments.out:
        _save(tables, figure, Path(arguments.out), provenance(trace, sys.argv[1:]))
    if arguments.json:
        print_json(tables)
        return
    heads = tables["heads"]
    count = len(heads[["layer", "kv_head"]].drop_duplicates())
    print_table(_by_budget(heads), f"optimum, mean over {count} kv_heads, {trace.name}")
    if "policies" in tables:
        print_table(tables["policies"], "policies against the optimum")
    if "splits" in tables:
        print_table(tables["splits"], "the same total, split over the kv_heads (retained mass)")


def _compute(trace, arguments, progress):
    """``{name: table}`` and the figure, if there is one."""
    common = head_choice(arguments) | {"progress": progress}
    policies = [] if arguments.policy == "none" else parse_policies(arguments.policy)
    seeded = common | {"seed": arguments.seed}
    if arguments.interval:
        found = certified_interval(
            trace, arguments.budget, time_limit=arguments.time_limit, **common
        )
        if arguments.policy == "none":
            return {"heads": found}, None
        results = replay(trace, policies, arguments.budget, optimum=False, **seeded)
        return {"heads": found, "policies": _by_policy(ratio_intervals(results, found))}, None
    if not any(policy.needs_optimum for policy in policies):
        policies.append(make_policy("optimum"))
    results = replay(trace, policies, arguments.budget, **seeded)
    found = certified_optimum(trace, arguments.budget, pooled=not arguments.no_pooled, **common)
    _require_agreement(results, found.heads)
    if found.splits.pooled_mass.isna().all() and not arguments.no_pooled:
        say("pooled bound left out: the rows of all heads would take more than 2 GiB")
    tables = {"heads": found.heads, "splits": found.splits, "allocation": found.allocation}
    if arguments.policy != "none":
        summary = summary_table(results)
        tables["policies"] = summary[summary.policy != "optimum"].reset_index(drop=True)
    return tables, (found, results)


def _require_agreement(results, heads):
    """The replay solves the optimum on its own: both must say the same."""
    key = ["layer", "kv_head", "budget"]
    replayed = results[results.policy == "optimum"].set_index(key).retained_mass
    certified = heads.set_index(key).optimum_mass
    assert np.allclose(certified, replayed.loc[certified.index], rtol=0, atol=1e-9)


def _by_budget(heads):
    """One line per budget: what is retained, and how many heads are proved."""
    lines = []
    for (tokens, text), rows in heads.groupby(["budget_tokens", "budget"], sort=True):
        proved = int((rows.certificate == "optimal").sum())
        lines.append(
            {
                "budget": text,
                "budget_tokens": tokens,
                "retained_mass": rows.optimum_mass.mean(),
                "worst_head": rows.optimum_mass.min(),
                "bound": rows.bound_mass.mean(),
                "largest_gap": f"{(rows.gap / rows.bound.clip(lower=1)).max():.1e}",
                "proved_optimal": f"{proved} of {len(rows)}",
                "slot_price": rows.slot_price.mean(),
            }
        )
    return pd.DataFrame(lines)


def _by_policy(intervals):
    """One line per policy and budget: means over heads of the bounds of the ratios."""
    means = [name for name in intervals.columns if "ratio" in name or name == "retained_mass"]
    key = ["budget_tokens", "budget", "policy", "parameters"]
    table = intervals.groupby(key, sort=False)[means].mean().reset_index()
    table = table.sort_values(["budget_tokens", "ratio_least"], ascending=[True, False])
    return table[["policy", "parameters", "budget", "budget_tokens", *means]]


def _save(tables, figure, out, origin):
    from h2o_theory.figures import Setting, allocation_figure

    for name, table in tables.items():
        table.attrs["provenance"] = origin
        save_results(table, out / f"{name}.csv", overwrite=True)
    if figure is not None:
        found, results = figure
        drawn = allocation_figure(found.allocation, found.splits, Setting.of(results))
        save_figure(drawn, out / "split.png")
    say(f"tables: {out}")
