"""A folder with one page, its figures and its tables, published whole or not at all."""

import base64
import contextlib
import io
from pathlib import Path

import jinja2
import pandas as pd

from h2o_theory import store
from h2o_theory.errors import BadArgument, OutputExists
from h2o_theory.figures.style import styled
from h2o_theory.report.results import refuse_existing
from h2o_theory.store import lock_output

__all__ = ["draw_all", "new_folder", "readable", "template"]

_DOTS_PER_INCH = 200


@contextlib.contextmanager
def new_folder(out, overwrite, marks):
    """A hidden folder to fill, renamed to ``out`` when the block ends without an error.

    Parameters
    ----------
    out : path
    overwrite : bool
        Replace what is there, if it holds all ``marks``.
    marks : tuple of str
        Files that tell an earlier folder of the same kind.

    Raises
    ------
    OutputExists
        If ``out`` exists and may not be replaced.
    CannotWrite
        For a place that cannot be written.
    """
    out = Path(out)
    refuse_existing(out, overwrite)
    if out.exists() and not all((out / name).is_file() for name in marks):
        raise OutputExists("the output exists and is not a report", where=out)
    with lock_output(out), store.new_folder(out) as folder:
        yield folder


def draw_all(draw, subject, folder):
    """Draw figures and save each as PNG and SVG.

    Parameters
    ----------
    draw : dict of str to function
        Each takes ``subject`` and returns a Figure, or raises BadArgument if there is nothing to
        draw.
    subject : object
    folder : Path

    Returns
    -------
    figures : list of (name, image, text)
        The image as a data address, the text as words for those who cannot see it.
    absent : list of (name, reason)
    """
    folder.mkdir()
    figures, absent = [], []
    for name, function in draw.items():
        try:
            figure = function(subject)
        except BadArgument as error:
            absent.append((name.replace("_", " "), str(error)))
            continue
        text = f"{figure.get_suptitle().strip()}. {figure.get_supxlabel()}"
        figures.append((name, _save(figure, folder / name), text))
    return figures, absent


@styled
def _save(figure, stem):
    """Write PNG and SVG; returns the PNG as a data address, which every browser shows alike."""
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=_DOTS_PER_INCH)
    stem.with_suffix(".png").write_bytes(image.getvalue())
    # The PNG's layout serves the SVG too; without a date, equal tables give equal files.
    figure.set_layout_engine("none")
    figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
    return "data:image/png;base64," + base64.b64encode(image.getvalue()).decode()


def readable(provenance):
    """A provenance dictionary as words: lists and dictionaries joined by commas."""
    return {
        key.replace("_", " "): ", ".join(f"{k} {v}" for k, v in value.items())
        if isinstance(value, dict)
        else ", ".join(map(str, value))
        if isinstance(value, list | tuple)
        else value
        for key, value in provenance.items()
    }


def _number(value, digits=4):
    return "–" if pd.isna(value) else f"{value:.{digits}f}"


def template(name):
    """A template of this room, with the filter ``number``."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("h2o_theory.report", "."), autoescape=True
    )
    environment.filters["number"] = _number
    return environment.get_template(name)
