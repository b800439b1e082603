"""``h2o-theory report``: one HTML page with figures and tables from a results file."""

import argparse

from h2o_theory.cli.common import say
from h2o_theory.errors import BadArgument
from h2o_theory.report import load_results, write_report

__all__ = ["add_options"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the verb and add its options."""
    parser.epilog = "example: h2o-theory report results.parquet --out report"
    parser.add_argument(
        "results", metavar="RESULTS", help=".parquet or .csv from replay --out or a sweep"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="COLUMN=VALUE",
        help="rows with that value only, such as prefill=0 or trace=NAME; may be repeated",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="folder of the new report")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing report")
    parser.set_defaults(run=run, output="new folder")


def run(arguments: argparse.Namespace) -> None:
    """Write the report and print the path of the page."""
    results = load_results(arguments.results)
    if "status" in results:
        failed = int((results.status == "failed").sum())
        if failed:
            say(f"{failed} failed cells are left out")
        results = results[results.status != "failed"]
    for wish in arguments.only:
        results = _only(results, wish)
    print(write_report(results, arguments.out, overwrite=arguments.overwrite))


def _only(results, wish):
    """The rows whose column has the value, compared as text."""
    column, equals, value = wish.partition("=")
    if not equals or column not in results:
        raise BadArgument(
            "rows cannot be chosen by this",
            where="--only",
            got=wish,
            expected="COLUMN=VALUE with a column of the table, such as prefill=0",
        )
    chosen = results[results[column].astype(str) == value]
    if chosen.empty:
        found = ", ".join(sorted(results[column].astype(str).unique())[:8])
        raise BadArgument(
            "no row has that value", where=f"--only {column}", got=value, expected=found
        )
    return chosen
