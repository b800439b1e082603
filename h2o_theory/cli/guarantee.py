"""``h2o-theory guarantee``: what the paper's guarantee says of a policy on a recorded trace."""

import argparse
import sys
from pathlib import Path

import pandas as pd

from h2o_theory.cli.common import integers, print_json, print_table, say, shown_progress
from h2o_theory.cli.provenance import provenance
from h2o_theory.errors import BadArgument
from h2o_theory.guarantee import measure_guarantee
from h2o_theory.optimum import capped, linear, log_saturation, square_root
from h2o_theory.report import refuse_existing, save_figure, save_results
from h2o_theory.submodular import READINGS
from h2o_theory.trace import open_trace

__all__ = ["add_options"]

_SHAPES = {
    "linear": linear,
    "sqrt": square_root,
    "log1p": lambda: log_saturation(1.0),
    "capped": lambda: capped(0.5),
}

_SUMMARY = (
    ("ratio_min", "least ratio f / opt"),
    ("ratio_last", "ratio at the last step"),
    ("direct_last", "proved there without induction"),
    ("together_last", "proved by induction, one condition"),
    ("repaired_last", "proved by induction, theta and gamma"),
    ("uniform_last", "the same with the worst constants"),
    ("paper_last", "the printed bound with the worst constants"),
    ("informative_steps", "evictions until it proves less than half"),
    ("vacuous_share", "share of steps where the printed bound is vacuous"),
    ("paper_fails", "steps where the printed bound fails"),
    ("best_exact_share", "share of steps where opt is exact"),
    ("theta", "largest theta"),
    ("gamma", "largest gamma as defined"),
    ("gamma_used", "largest gamma as used"),
    ("swap_loss", "largest loss of a swap"),
    ("excess", "largest eps0"),
    ("alpha", "least alpha, gamma as defined"),
    ("alpha_used", "least alpha, gamma as used"),
    ("beta", "least beta"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the verb and add its options."""
    parser.description = (
        "Follow a policy through the H2O paper's guarantee (Theorem 4.4): the value of "
        "its set, the best value of each step, the smallest theta, gamma and eps0 that hold, what "
        "follows from them, and where the bound says nothing."
    )
    parser.epilog = (
        "example: h2o-theory guarantee traces/smollm2-135m-512 --layers 10 --out guarantee"
    )
    parser.add_argument("trace", metavar="TRACE")
    parser.add_argument("--policy", metavar="P", default="h2o", help="default: %(default)s")
    parser.add_argument(
        "--budget",
        metavar="K",
        default="10%",
        help="at least 2 tokens, the query's own included (default: %(default)s)",
    )
    parser.add_argument(
        "--function",
        metavar="F",
        default="accumulated",
        help=f"f: {', '.join(READINGS)} (default: %(default)s)",
    )
    parser.add_argument(
        "--shape",
        metavar="H",
        default="linear",
        help=f"concave h of f: {', '.join(_SHAPES)}; capped is min(x, 0.5) (default: %(default)s)",
    )
    parser.add_argument(
        "--approximate",
        metavar="F",
        default="cached",
        help="f~, what the policy sees: cached, none, or as --function (default: %(default)s, the "
        "same reading of the rows that the cache computes)",
    )
    parser.add_argument("--prefill", type=int, default=0, metavar="P", help="prompt rows")
    parser.add_argument("--layers", metavar="L,L,...", help="layers to use (default: all recorded)")
    parser.add_argument("--kv-heads", metavar="H,H,...", help="kv_heads to use (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="seed of random policies (default: 0)")
    parser.add_argument("--out", metavar="DIR", help="new folder for both tables and the figure")
    parser.add_argument("--overwrite", action="store_true", help="replace files in the folder")
    parser.add_argument("--json", action="store_true", help="one row per kv_head as JSON on stdout")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure, save, print."""
    if arguments.out:
        refuse_existing(arguments.out, arguments.overwrite)
    if arguments.shape not in _SHAPES:
        raise BadArgument("--shape must be one of " + ", ".join(_SHAPES), got=arguments.shape)
    trace = open_trace(arguments.trace)
    with shown_progress() as progress:
        found = measure_guarantee(
            trace,
            arguments.policy,
            arguments.budget,
            arguments.function,
            shape=_SHAPES[arguments.shape](),
            approximate=None if arguments.approximate == "none" else arguments.approximate,
            prefill=arguments.prefill,
            layers=integers(arguments.layers, "--layers"),
            kv_heads=integers(arguments.kv_heads, "--kv-heads"),
            seed=arguments.seed,
            progress=progress,
        )
    if arguments.out:
        _save(found, Path(arguments.out), provenance(trace, sys.argv[1:]))
    if arguments.json:
        print_json(found.heads)
        return
    print_table(_over_heads(found), _title(found))
    for line in _verdict(found):
        print(line)


def _over_heads(found):
    """The summary: median, least and largest over kv_heads of each quantity."""
    heads = found.heads
    # Where f~ is f, nothing is approximated: eps0 is 0, and the direct bound the ratio itself.
    left_out = ("direct_last", "excess", "beta") if found.approximate == found.exact else ()
    return pd.DataFrame(
        [
            {
                "quantity": label,
                "median": _shown(heads[name].median()),
                "least": _shown(heads[name].min()),
                "largest": _shown(heads[name].max()),
            }
            for name, label in _SUMMARY
            if name not in left_out
        ]
    )


def _shown(number):
    """Four digits, whatever the size."""
    return f"{number:.4g}"


def _title(found):
    seen = "f itself" if found.approximate == found.exact else found.approximate
    return (
        f"{found.policy} ({found.parameters}), budget {found.budget} = {found.budget_tokens} "
        f"tokens, {len(found.heads)} kv_heads, {found.trace}; f: {found.exact}, f~: {seen}"
    )


def _verdict(found):
    """The premises and the conclusion of Theorem 4.4, in three lines."""
    heads, count = found.heads, len(found.heads)
    yield (
        f"premises (theta = gamma = alpha / (10 n) with alpha < 1, swaps by rule D.22, none that "
        f"loses): hold on {int(heads['hold'].sum())} of {count} kv_heads; alpha < 1 on "
        f"{int((heads['alpha_used'] < 1).sum())}, the rule on "
        f"{int(heads['swaps_follow_rule'].sum())}, no loss on "
        f"{int(heads['swap_never_loses'].sum())}"
    )
    yield (
        f"Theorem 4.4 with the least alpha and beta: vacuous at every step on "
        f"{int(heads['vacuous'].sum())} of {count} kv_heads"
    )
    inexact = int((heads["best_exact_share"] < 1).sum())
    if inexact:
        yield (
            f"opt is bounded from both sides, not exact, at some step of {inexact} kv_heads; "
            "ratios and bounds use the upper one"
        )


def _save(found, out, origin):
    from h2o_theory.figures import guarantee_figure

    for name, table in (("heads", found.heads), ("steps", found.steps)):
        table.attrs["provenance"] = origin
        save_results(table, out / f"{name}.csv", overwrite=True)
    save_figure(guarantee_figure(found), out / "guarantee.png")
    say(f"tables and figure: {out}")
