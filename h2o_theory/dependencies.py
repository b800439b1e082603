"""Optional packages, imported when first needed and named plainly when absent."""

import importlib
from types import ModuleType

from h2o_theory.errors import MissingDependency

__all__ = ["require"]

_EXTRAS = {
    "accelerate": "record",
    "distributed": "cluster",
    "gguf": "record",
    "huggingface_hub": "record",
    "lm_eval": "harness",
    "networkx": "analysis",
    "scipy": "analysis",
    "tokenizers": "record",
    "torch": "record",
    "transformers": "record",
}
"""The extra that installs each optional package."""


def require(name: str) -> ModuleType:
    """Import a module of an optional package and return it.

    Parameters
    ----------
    name : str
        Such as ``"scipy.optimize"``; its package must be one of an extra.

    Raises
    ------
    MissingDependency
        If it is not installed, with the pip command that installs it.

    Examples
    --------
    >>> require("scipy.optimize").__name__
    'scipy.optimize'
    """
    package = name.partition(".")[0]
    extra = _EXTRAS[package]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"the package {package} is needed for this and is not installed",
            got=error,
            hint=f'Install it with: pip install "h2o-theory[{extra}]"',
        ) from None
