"""``h2o-theory validate``: read a whole trace and refuse it if anything is wrong."""

from h2o_theory.cli.common import shown_progress
from h2o_theory.trace import open_trace, validate

__all__ = ["add_parser"]


def add_parser(verbs):
    """Add the verb."""
    parser = verbs.add_parser("validate", help="check a trace: checksums, shapes, finite, rows")
    parser.add_argument("trace", metavar="TRACE")
    parser.set_defaults(run=run)


def run(arguments):
    """Validate and say what was looked at."""
    with shown_progress() as progress:
        report = validate(open_trace(arguments.trace), progress)
    print(
        f"valid: {report.segments} segments, {report.heads} kv_heads, {report.rows} rows, "
        f"row sums within {report.worst_row_sum_error:.1e} of one"
    )
