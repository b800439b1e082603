"""``h2o-theory replay``: policies on a recorded trace, each against the exact optimum."""

import argparse

from h2o_theory.budgets import read_budget_matrix
from h2o_theory.cli.common import (
    DEFAULT_POLICIES,
    add_replay_options,
    add_table_options,
    head_choice,
    print_table,
    say,
    say_parts,
    shown_progress,
)
from h2o_theory.cli.provenance import without_output_error
from h2o_theory.cli.results import save_and_print
from h2o_theory.engine import replay, resolved_parts
from h2o_theory.policies import parse_policies
from h2o_theory.report import check_destination, summary_table
from h2o_theory.trace import open_trace

__all__ = ["add_options"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the verb and add its options."""
    parser.description = (
        "Replay eviction policies on a recorded trace and print, per policy and "
        "budget, the mean over heads of the ratio to the exact offline optimum."
    )
    parser.epilog = (
        "example: h2o-theory replay notes.trace --policy h2o,recent,optimum "
        "--budget 10%,64 --out results.parquet"
    )
    parser.add_argument("trace", metavar="TRACE")
    add_replay_options(parser)
    parser.add_argument(
        "--budget-matrix",
        action="append",
        default=[],
        metavar="FILE",
        help="one budget for each layer and kv_head, .json or .csv, in place of --budget; may be "
        "repeated",
    )
    parser.add_argument(
        "--no-optimum",
        dest="optimum",
        action="store_false",
        help="leave out the exact optimum, for long traces: no ratios to it",
    )
    add_table_options(parser)
    parser.set_defaults(run=run, output="file")


def run(arguments: argparse.Namespace) -> None:
    """Replay, save, print."""
    if arguments.out:
        check_destination(arguments.out, arguments.overwrite)
    trace = open_trace(arguments.trace)
    policies = parse_policies(arguments.policy)
    if not arguments.optimum and arguments.policy == DEFAULT_POLICIES:
        policies = [policy for policy in policies if not policy.needs_optimum]
    budgets = [read_budget_matrix(path) for path in arguments.budget_matrix] or arguments.budget
    choice = head_choice(arguments) | {"seed": arguments.seed, "optimum": arguments.optimum}
    workers = choice.pop("workers")
    say_parts(resolved_parts(trace, policies, budgets, **choice))
    with shown_progress() as progress:
        table = replay(
            trace,
            policies,
            budgets,
            **choice,
            workers=workers,
            progress=progress,
        )
    if reason := without_output_error(trace):
        say(f"output error {reason}")
    if save_and_print(table, trace, arguments):
        return
    if not arguments.optimum:
        say("without the optimum there are no ratios to it: they show as -")
    heads = len(table[["layer", "kv_head"]].drop_duplicates())
    print_table(summary_table(table), f"mean over {heads} heads, {trace.name}")
