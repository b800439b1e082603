"""``h2o-theory report``: one HTML page with figures and tables from a results file."""

from h2o_theory.report import load_results, write_report

__all__ = ["add_parser"]


def add_parser(verbs):
    """Add the verb."""
    parser = verbs.add_parser(
        "report",
        help="write figures, tables and one HTML page",
        epilog="example: h2o-theory report results.parquet --out report",
    )
    parser.add_argument("results", metavar="RESULTS", help=".parquet or .csv from replay --out")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder of the new report")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing report")
    parser.set_defaults(run=run)


def run(arguments):
    """Write the report and print the path of the page."""
    results = load_results(arguments.results)
    print(write_report(results, arguments.out, overwrite=arguments.overwrite))
