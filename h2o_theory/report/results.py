"""Result tables as files, Parquet or CSV, and figures, written atomically."""

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd

from h2o_theory.errors import BadArgument, OutputExists
from h2o_theory.figures.table import TEXT
from h2o_theory.store import new_file

__all__ = ["check_destination", "load_results", "refuse_existing", "save_figure", "save_results"]


def _read_csv(path):
    """Text columns stay text: there "25", "null" and "" are words like others."""
    header = pd.read_csv(path, nrows=0).columns
    return pd.read_csv(
        path,
        dtype={name: str for name in header if name in TEXT},
        keep_default_na=False,
        na_values={name: ["", "nan", "NaN"] for name in header if name not in TEXT},
    )


_READERS = {".parquet": pd.read_parquet, ".csv": _read_csv}


def refuse_existing(path, overwrite=False):
    """Raise OutputExists if there is something at ``path`` and it may not be replaced."""
    if not overwrite and os.path.lexists(path):
        raise OutputExists(
            "the output exists", where=path, hint="Choose another name, or allow overwriting"
        )


def check_destination(path, overwrite=False):
    """Refuse a results file of an unknown kind or that exists, before any work is done for it."""
    _known_ending(Path(path))
    refuse_existing(path, overwrite)


def save_results(results, path, *, overwrite=False):
    """Write a table as .parquet (with its provenance) or .csv; returns the path.

    Raises
    ------
    OutputExists
        If ``path`` exists and ``overwrite`` is false.
    BadArgument
        For another ending.
    CannotWrite
        For a place that cannot be written.
    """
    path = Path(path)
    check_destination(path, overwrite)
    with new_file(path) as temporary:
        if path.suffix == ".parquet":
            _plain_attributes(results).to_parquet(temporary, index=False)
        else:
            results.to_csv(temporary, index=False)
    return path


def save_figure(figure, path):
    """Write a matplotlib figure as PNG, atomically; returns the path."""
    path = Path(path)
    with new_file(path) as temporary:
        figure.savefig(temporary, format="png")
    return path


def _plain_attributes(results):
    """The table with attributes that JSON can hold: paths, dates and the like become text."""
    results = results.copy(deep=False)
    results.attrs = json.loads(json.dumps(results.attrs, default=_as_plain))
    return results


def _as_plain(value):
    return value.item() if isinstance(value, np.generic) else str(value)


def load_results(path):
    """Read a table that :func:`save_results` wrote.

    Raises
    ------
    BadArgument
        If the file is missing, of another ending, or not what its ending says.
    """
    path = Path(path)
    reader = _known_ending(path)
    if not path.is_file():
        raise BadArgument(
            "no such results file",
            where=path,
            hint="Write one with: h2o-theory replay TRACE --out results.parquet",
        )
    try:
        return reader(path)
    except (ValueError, OSError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadArgument("the results file cannot be read", where=path, got=first) from None


def _known_ending(path):
    if path.suffix not in _READERS:
        raise BadArgument(
            "unknown kind of results file",
            where=path,
            got=path.suffix or "no ending",
            expected=" or ".join(_READERS),
        )
    return _READERS[path.suffix]
