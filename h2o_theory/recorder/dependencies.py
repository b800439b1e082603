"""Optional packages, imported when first needed and named plainly when absent."""

import importlib

from h2o_theory.errors import MissingDependency

__all__ = ["require"]

INSTALL = 'pip install "h2o-theory[record]"'


def require(name):
    """Import an optional package and return it.

    Raises
    ------
    MissingDependency
        If it is not installed, with the pip command that installs it.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"recording needs the package {name}",
            got=error,
            hint=f"Install it with: {INSTALL}",
        ) from None
