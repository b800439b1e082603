"""``h2o-theory info``: what a trace holds."""

import argparse

from h2o_theory.cli.common import print_json
from h2o_theory.trace import open_trace

__all__ = ["add_options"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the verb and add its options."""
    parser.description = (
        "Model, text, layers, heads, content and size of a trace, from its description "
        "and the manifest alone; `h2o-theory validate` reads the values."
    )
    parser.add_argument("trace", metavar="TRACE", help="folder of one trace")
    parser.add_argument(
        "--json", action="store_true", help="print the summary and the whole spec as JSON"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Print the summary, or everything."""
    trace = open_trace(arguments.trace)
    info = trace.info()
    if arguments.json:
        print_json(info | {"spec": trace.spec.as_dict()})
        return
    for name, value in info.items():
        print(f"{name:22} {value}")
