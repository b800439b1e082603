"""``python -m benchmarks``: speed and memory as ratios within one run."""

import argparse
import importlib
import sys
from collections.abc import Sequence

import pandas as pd

from h2o_theory.cli.common import print_table, shown_progress
from h2o_theory.errors import BadArgument, H2OTheoryError, UnknownName
from h2o_theory.report import check_destination, save_results

__all__ = ["main"]

_BENCHMARKS = ("optimum", "submodular", "replay", "sweep", "record", "live", "costs")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Time the optimum against HiGHS, lazy greedy against naive greedy and other "
        "libraries, the H2O replay against a PyTorch loop, a sweep over a pretrained model, and "
        "recording and eviction in the model against the plain forward pass, and the cost model "
        "against live decoding. Needs the record and "
        "dev extras.",
    )
    parser.add_argument(
        "which",
        nargs="*",
        metavar="BENCHMARK",
        help=f"{', '.join(_BENCHMARKS)} (default: all)",
    )
    parser.add_argument("--out", metavar="FILE", help="write the table to a .csv or .parquet file")
    own = parser.add_argument_group(
        "record",
        "With any of these, random-weight models of published shapes in bfloat16, with sampled "
        "rows against eager attention in float32. This was run on the CPU with --shape tiny; on a "
        "GPU it has not been run yet. Of the packaged model, --tokens alone sets the length.",
    )
    own.add_argument("--device", help="cuda, cuda:1, ..., or cpu")
    own.add_argument(
        "--shape", metavar="S,S,...", help="opt-6.7b, llama-7b, tiny (default: the first two)"
    )
    own.add_argument(
        "--tokens", type=int, metavar="T", help="length of the text (default: 4096, or several)"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the chosen benchmarks and print one table; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        _run(arguments)
    except H2OTheoryError as error:
        print(f"benchmarks: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0


def _run(arguments: argparse.Namespace) -> None:
    if arguments.out:
        check_destination(arguments.out)
    for name in arguments.which:
        if name not in _BENCHMARKS:
            raise UnknownName.of("benchmark", name, _BENCHMARKS)
    own = _record_options(arguments)
    tables = []
    with shown_progress() as progress:
        for name in arguments.which or _BENCHMARKS:
            module = importlib.import_module(f"benchmarks.{name}")
            tables.append(module.run(progress=progress, **own))
    table = pd.concat(tables, ignore_index=True)
    if arguments.out:
        save_results(table, arguments.out)
    print_table(table)


def _record_options(arguments: argparse.Namespace) -> dict[str, object]:
    """Options that only the benchmark of recording has."""
    shapes = arguments.shape.split(",") if arguments.shape else None
    given = {"device": arguments.device, "shapes": shapes, "tokens": arguments.tokens}
    given = {name: value for name, value in given.items() if value is not None}
    if given and arguments.which != ["record"]:
        raise BadArgument(
            f"{', '.join(given)} can be given to the benchmark record only",
            hint="Run: python -m benchmarks record ...",
        )
    return given


if __name__ == "__main__":
    sys.exit(main())
