"""``h2o-theory validate``: read a whole trace and refuse it if anything is wrong."""

import argparse
from dataclasses import asdict

from h2o_theory.cli.common import print_json, shown_progress
from h2o_theory.trace import open_trace, validate

__all__ = ["add_options"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the verb and add its options."""
    parser.description = (
        "Read all of a trace: checksums, gaps, shapes and dtypes of its tensors, "
        "finite numbers, visible intervals, and that every row sums to one. Exit code 2 and the "
        "first fault if anything is wrong. Takes time in proportion to the squared length."
    )
    parser.add_argument("trace", metavar="TRACE", help="folder of one trace")
    parser.add_argument("--json", action="store_true", help="print what was looked at as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Validate and say what was looked at."""
    with shown_progress() as progress:
        report = validate(open_trace(arguments.trace), progress)
    if arguments.json:
        print_json({"valid": True, **asdict(report)})
        return
    print(
        f"valid: {report.segments} segments, {report.kv_heads} kv_heads, {report.rows} rows, "
        f"row sums within {report.worst_row_sum_error:.1e} of one"
    )
