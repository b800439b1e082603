"""Where a verb's table of results goes: a file with its provenance, and JSON if asked for."""

import sys

from h2o_theory.cli.common import print_json, say
from h2o_theory.cli.provenance import provenance
from h2o_theory.report import save_results

__all__ = ["hand_over"]


def hand_over(table, trace, arguments):
    """Save the table to ``--out`` and print it for ``--json``; returns whether it was printed."""
    table.attrs["provenance"] = provenance(trace, sys.argv[1:])
    if arguments.out:
        save_results(table, arguments.out, overwrite=arguments.overwrite)
        say(f"results: {arguments.out}")
    if arguments.json:
        print_json(table)
    return arguments.json
