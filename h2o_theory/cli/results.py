"""Where a verb's table of results goes: a file with its provenance, and JSON if asked for."""

import argparse
import sys

import pandas as pd

from h2o_theory.cli.common import print_json, say
from h2o_theory.cli.provenance import provenance
from h2o_theory.report import save_results
from h2o_theory.trace import Trace

__all__ = ["save_and_print"]


def save_and_print(table: pd.DataFrame, trace: Trace, arguments: argparse.Namespace) -> bool:
    """Save the table to ``--out`` and print it for ``--json``; returns whether it was printed."""
    table.attrs["provenance"] = provenance(trace, sys.argv[1:])
    if arguments.out:
        save_results(table, arguments.out, overwrite=arguments.overwrite)
        say(f"results: {arguments.out}")
    if arguments.json:
        print_json(table)
    return arguments.json
