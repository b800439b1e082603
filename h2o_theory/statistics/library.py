"""scipy and networkx, imported when first needed and named plainly when absent."""

import importlib

from h2o_theory.errors import MissingDependency

__all__ = ["library"]


def library(name):
    """Import a module of an optional library and return it.

    Raises
    ------
    MissingDependency
        If it is not installed, with the pip command that installs it.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"the analysis needs the package {name.partition('.')[0]}",
            got=error,
            hint='Install it with: pip install "h2o-theory[analysis]"',
        ) from None
