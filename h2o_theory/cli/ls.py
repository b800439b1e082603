"""``h2o-theory ls``: what there is to choose from."""

from dataclasses import fields

import pandas as pd

from h2o_theory.cli.common import print_table
from h2o_theory.masks import available_masks
from h2o_theory.policies import available

__all__ = ["add_parser"]


def add_parser(verbs):
    """Add the verb."""
    parser = verbs.add_parser("ls", help="list policies or masks")
    parser.add_argument("what", choices=tuple(_LISTS))
    parser.set_defaults(run=run)


def run(arguments):
    """Print what is registered, with parameters and defaults."""
    print_table(pd.DataFrame(_LISTS[arguments.what]()))


def _policies():
    return [
        {
            "policy": name,
            "kind": cls.kind,
            "needs": "the future" if cls.kind == "clairvoyant" else ", ".join(cls.needs.split()),
            "set per": cls().scope,
            **_described(cls),
        }
        for name, cls in available().items()
    ]


def _masks():
    return [
        {"mask": name, "needs": cls.needs, **_described(cls)}
        for name, cls in available_masks().items()
    ]


def _described(cls):
    return {
        "parameters": " ".join(f"{item.name}={item.default}" for item in fields(cls)),
        "rule": cls.__doc__.splitlines()[0],
        "source": cls.source,
    }


_LISTS = {"policies": _policies, "masks": _masks}
