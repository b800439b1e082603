"""``h2o-theory ls``: what there is to choose from."""

from dataclasses import fields

import pandas as pd

from h2o_theory.cli.common import print_table
from h2o_theory.policies import available

__all__ = ["add_parser"]


def add_parser(verbs):
    """Add the verb."""
    parser = verbs.add_parser("ls", help="list policies")
    parser.add_argument("what", choices=("policies",))
    parser.set_defaults(run=run)


def run(arguments):
    """Print the registered policies with their parameters and defaults."""
    rows = [
        {
            "policy": name,
            "kind": cls.kind,
            "needs": cls.needs if cls.kind == "online" else "the future",
            "parameters": " ".join(f"{item.name}={item.default}" for item in fields(cls)),
            "rule": cls.__doc__.splitlines()[0],
            "source": cls.source,
        }
        for name, cls in available().items()
    ]
    print_table(pd.DataFrame(rows))
