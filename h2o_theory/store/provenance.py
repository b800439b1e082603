"""Where a result comes from: kept with every table, figure and report."""

import datetime
import platform
from typing import Any

import numba
import numpy as np

import h2o_theory
from h2o_theory.store.identity import code_identity

__all__ = ["provenance", "versions"]


def versions(*rooms: str) -> dict[str, str]:
    """Versions that a result may depend on, with a digest of this package's own code.

    Parameters
    ----------
    *rooms : str
        Where the result depends on some rooms only, as for :func:`~h2o_theory.store.code_identity`.
    """
    return {
        "h2o-theory": f"{h2o_theory.__version__}+{code_identity(*rooms)[:12]}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
    }


def provenance(command: list[str], **facts: Any) -> dict[str, Any]:
    """A flat dictionary: the facts given, the command, versions and the date.

    Parameters
    ----------
    command : list of str
        The words behind ``h2o-theory``.
    **facts
        What else the result is of; ``versions`` among them are added to those found here.

    Examples
    --------
    >>> list(provenance(["replay", "my.trace"], model="opt"))
    ['model', 'command', 'versions', 'date']
    """
    more = facts.pop("versions", {})
    return {
        **facts,
        "command": " ".join(["h2o-theory", *command]),
        "versions": {**versions(), **more},
        "date": datetime.date.today().isoformat(),
    }
