"""``h2o-theory transforms``: keys and values in fewer bits, under any policy, at equal bytes."""

import argparse

from h2o_theory.cli.common import (
    add_head_options,
    add_table_options,
    head_choice,
    print_table,
    shown_progress,
)
from h2o_theory.cli.results import save_and_print
from h2o_theory.report import check_destination
from h2o_theory.trace import open_trace
from h2o_theory.transforms import replay_transforms

__all__ = ["add_options"]

_KEY = ["budget_bytes", "budget", "policy", "transform", "budget_tokens"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the verb and add its options."""
    parser.description = (
        "Give every transform of keys and values the bytes of the same budget, let "
        "each policy fill them, and measure the error of the attention output."
    )
    parser.epilog = (
        "example: h2o-theory transforms traces/smollm2-135m-512 --policy h2o "
        "--transform exact,kivi:bits=4,kivi:bits=2 --budget 10%"
    )
    parser.add_argument("trace", metavar="TRACE")
    parser.add_argument("--policy", metavar="P,P,...", default="h2o", help="default: %(default)s")
    parser.add_argument(
        "--transform",
        metavar="X,X,...",
        default="exact,kivi:bits=4,kivi:bits=2,think",
        help="default: %(default)s",
    )
    parser.add_argument(
        "--budget",
        metavar="K,K,...",
        default="5%,10%,20%",
        help="entries of a cache in 16 bits, whose bytes all get (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of random policies (default: 0)")
    add_head_options(parser)
    add_table_options(parser)
    parser.set_defaults(run=run, output="file")


def run(arguments: argparse.Namespace) -> None:
    """Replay, save, print."""
    if arguments.out:
        check_destination(arguments.out, arguments.overwrite)
    trace = open_trace(arguments.trace)
    with shown_progress() as progress:
        table = replay_transforms(
            trace,
            arguments.policy,
            arguments.transform,
            arguments.budget,
            seed=arguments.seed,
            **head_choice(arguments),
            progress=progress,
        )
    if save_and_print(table, trace, arguments):
        return
    means = table.groupby(_KEY, sort=False)[["retained_mass", "output_error"]].mean().reset_index()
    means = means.sort_values(["budget_bytes", "output_error"])
    heads = len(table[["layer", "kv_head"]].drop_duplicates())
    print_table(means, f"mean over {heads} kv_heads, {trace.name}: bytes of one kv_head")
