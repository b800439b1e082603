"""``h2o-theory ls``: what there is to choose from."""

import argparse
from dataclasses import fields

import pandas as pd

from h2o_theory.cli.common import print_table, shown_progress
from h2o_theory.errors import BadArgument
from h2o_theory.masks import available_masks
from h2o_theory.policies import available
from h2o_theory.transforms import available_transforms

__all__ = ["add_options"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the verb and add its options."""
    parser.add_argument("what", choices=tuple(_LISTS))
    parser.add_argument(
        "--verify",
        action="store_true",
        help="families: record a tiny random model of each and add the largest absolute deviation "
        "of any attention entry from the model's own eager output_attentions",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Print what is registered, with parameters and defaults."""
    if arguments.verify and arguments.what != "families":
        raise BadArgument("only families are verified", where="--verify", got=arguments.what)
    rows = _LISTS[arguments.what]()
    if arguments.verify:
        rows = _verified(rows)
    print_table(pd.DataFrame(rows))


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


def _transforms():
    return [{"transform": name, **_described(cls)} for name, cls in available_transforms().items()]


def _families():
    from h2o_theory.recorder import FAMILIES

    return [
        {"family": name, "models": family.models, "special": family.special}
        for name, family in FAMILIES.items()
    ]


def _verified(rows):
    from h2o_theory.recorder.verify import TOLERANCE, largest_deviation

    with shown_progress() as progress:
        for done, row in enumerate(rows, start=1):
            for dtype, accepted in TOLERANCE.items():
                column = f"{dtype} (at most {accepted:g})"
                row[column] = f"{largest_deviation(row['family'], dtype):.1e}"
            progress(done, len(rows), "families")
    return rows


def _described(cls):
    return {
        "parameters": " ".join(f"{item.name}={item.default}" for item in fields(cls)),
        "rule": cls.__doc__.splitlines()[0],
        "source": cls.source,
    }


_LISTS = {
    "policies": _policies,
    "masks": _masks,
    "transforms": _transforms,
    "families": _families,
}
