"""Optional packages, imported when first needed and named plainly when absent."""

import importlib

from h2o_theory.errors import MissingDependency

__all__ = ["require"]

_EXTRAS = {"lm_eval": "harness", "networkx": "analysis", "scipy": "analysis"}
"""The extra that installs a package, where it is not ``record``."""


def require(name):
    """Import a module of an optional package and return it.

    Raises
    ------
    MissingDependency
        If it is not installed, with the pip command that installs it.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0]
        extra = _EXTRAS.get(package, "record")
        raise MissingDependency(
            f"this needs the package {package}",
            got=error,
            hint=f'Install it with: pip install "h2o-theory[{extra}]"',
        ) from None
