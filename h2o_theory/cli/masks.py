"""``h2o-theory masks``: sparse attention patterns on a recorded trace, at cache budgets."""

import argparse

from h2o_theory.cli.common import (
    add_head_options,
    add_table_options,
    head_choice,
    print_table,
    say,
    shown_progress,
)
from h2o_theory.cli.results import save_and_print
from h2o_theory.masks import available_masks, replay_masks
from h2o_theory.report import check_destination
from h2o_theory.trace import open_trace

__all__ = ["add_options"]

_KEY = ["budget_tokens", "budget", "mask"]
_MEANS = ["retained_mass", "topk_bound_ratio", "output_error", "kl", "keys_seen_mean", "readmitted"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the verb and add its options."""
    parser.description = (
        "Measure sparse attention patterns at the budgets of the caches. A mask may "
        "show a key again that it left out, so it needs all keys in memory and is not compared "
        "with the optimum of a cache, but with the per-row top-k bound."
    )
    parser.epilog = (
        "example: h2o-theory masks traces/smollm2-135m-512 --mask strided,strided:heavy=0.5"
    )
    parser.add_argument("trace", metavar="TRACE")
    parser.add_argument(
        "--mask",
        metavar="M,M,...",
        help="masks, with parameters as in topk:heavy=0.5 (default: all the trace can serve, bare)",
    )
    parser.add_argument(
        "--budget", metavar="K,K,...", default="10%,20%", help="budgets (default: %(default)s)"
    )
    add_head_options(parser)
    add_table_options(parser)
    parser.set_defaults(run=run, output="file")


def run(arguments: argparse.Namespace) -> None:
    """Replay, save, print."""
    if arguments.out:
        check_destination(arguments.out, arguments.overwrite)
    trace = open_trace(arguments.trace)
    with shown_progress() as progress:
        table = replay_masks(
            trace,
            arguments.mask or _served_by(trace),
            arguments.budget,
            **head_choice(arguments),
            progress=progress,
        )
    if save_and_print(table, trace, arguments):
        return
    means = table.groupby(_KEY, sort=False)[_MEANS].mean().reset_index()
    means = means.sort_values(["budget_tokens", "retained_mass"], ascending=[True, False])
    heads = len(table[["layer", "kv_head"]].drop_duplicates())
    print_table(means.drop(columns="budget_tokens"), f"mean over {heads} kv_heads, {trace.name}")


def _served_by(trace):
    """All masks, or those that need no queries and keys where the trace holds none."""
    masks = available_masks()
    if trace.spec.content == "attention":
        left_out = [name for name, cls in masks.items() if cls.needs == "qk"]
        say(f"the trace holds attention alone; left out: {', '.join(left_out)}")
        return [name for name in masks if name not in left_out]
    return list(masks)
