"""``h2o-theory transforms``: keys and values in fewer bits, under any policy, at equal bytes."""

import sys

from h2o_theory.cli.common import integers, print_json, print_table, say, shown_progress
from h2o_theory.cli.provenance import provenance
from h2o_theory.report import check_destination, save_results
from h2o_theory.trace import open_trace
from h2o_theory.transforms import replay_transforms

__all__ = ["add_parser"]

_KEY = ["budget_bytes", "budget", "policy", "transform", "parameters", "budget_tokens"]


def add_parser(verbs):
    """Add the verb."""
    parser = verbs.add_parser(
        "transforms",
        help="fewer bits against fewer entries: output error at equal bytes",
        description="Give every transform of keys and values the bytes of the same budget, let "
        "each policy fill them, and measure the error of the attention output.",
        epilog="example: h2o-theory transforms traces/smollm2-135m-512 --policy h2o "
        "--transform exact,kivi:bits=4,kivi:bits=2 --budget 10%",
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
    parser.add_argument("--prefill", type=int, default=0, metavar="P", help="unscored prompt rows")
    parser.add_argument("--layers", metavar="L,L,...", help="default: all recorded")
    parser.add_argument("--kv-heads", metavar="H,H,...", help="default: all")
    parser.add_argument("--seed", type=int, default=0, help="for random policies (default: 0)")
    parser.add_argument("--workers", type=int, metavar="N", help="threads (default: all cores)")
    parser.add_argument("--out", metavar="FILE", help="results as .parquet or .csv")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing file")
    parser.add_argument("--json", action="store_true", help="every row as JSON on stdout")
    parser.set_defaults(run=run)


def run(arguments):
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
            prefill=arguments.prefill,
            layers=integers(arguments.layers, "--layers"),
            kv_heads=integers(arguments.kv_heads, "--kv-heads"),
            seed=arguments.seed,
            workers=arguments.workers,
            progress=progress,
        )
    table.attrs["provenance"] = provenance(trace, sys.argv[1:])
    if arguments.out:
        save_results(table, arguments.out, overwrite=arguments.overwrite)
        say(f"results: {arguments.out}")
    if arguments.json:
        print_json(table.astype(object).where(table.notna(), None).to_dict("records"))
        return
    means = table.groupby(_KEY, sort=False)[["retained_mass", "output_error"]].mean().reset_index()
    means = means.sort_values(["budget_bytes", "output_error"])
    heads = len(table[["layer", "kv_head"]].drop_duplicates())
    print_table(means, f"mean over {heads} kv_heads, {trace.name}: bytes of one kv_head")
