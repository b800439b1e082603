"""The report: figures as PNG and SVG, tables, and one self-contained HTML page."""

import base64
import io
import shutil
import tempfile
from pathlib import Path

import jinja2
import pandas as pd

from h2o_theory.errors import BadArgument, OutputExists
from h2o_theory.figures import (
    head_figure,
    lost_mass_figure,
    mass_figure,
    ratio_figure,
    sparsity_figure,
)
from h2o_theory.figures.style import styled
from h2o_theory.figures.table import Setting, check_results
from h2o_theory.report.results import refuse_existing, save_results
from h2o_theory.report.summary import summary_table
from h2o_theory.report.tables import glance, sees_the_future, table_by_budget

__all__ = ["write_report"]

_DOTS_PER_INCH = 200
_FIGURES = {
    "retained_mass": mass_figure,
    "approximation_ratio": ratio_figure,
    "lost_mass_ratio": lost_mass_figure,
    "ratio_by_head": head_figure,
    "sparsity": sparsity_figure,
}


def write_report(results, out, *, overwrite=False):
    """Write ``index.html``, ``figures/*.png`` and ``*.svg``, the table and its summary.

    Everything is made in a hidden folder beside ``out``, which is renamed as the last step. The
    page carries its figures within itself and loads nothing.

    Parameters
    ----------
    results : DataFrame
        A table of :func:`h2o_theory.replay`; ``results.attrs["provenance"]`` is printed if there.
    out : path
        The folder of the report.
    overwrite : bool
        Replace an earlier report (a folder with ``index.html`` and ``summary.csv``).

    Returns
    -------
    pathlib.Path
        The page.

    Raises
    ------
    OutputExists
        If ``out`` exists and may not be replaced.
    BadArgument
        For a table that is not one experiment, or a place that cannot be written.
    """
    check_results(results)
    out = Path(out)
    refuse_existing(out, overwrite)
    if out.exists() and not all((out / name).is_file() for name in ("index.html", "summary.csv")):
        raise OutputExists("the output exists and is not a report", where=out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}.partial-"))
    except OSError as error:
        raise BadArgument("cannot write there", where=out, got=error.strerror) from None
    try:
        _fill(folder, results)
        folder.chmod(0o755)
        _take_place(folder, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return out / "index.html"


def _take_place(folder, out):
    """Rename `folder` to `out`; an earlier report goes last, or comes back if that fails."""
    old = folder.with_name(folder.name + ".old")
    if out.exists():
        out.rename(old)
    try:
        folder.rename(out)
    except BaseException:
        if old.exists():
            old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _fill(folder, results):
    (folder / "figures").mkdir()
    figures, absent = [], []
    for name, draw in _FIGURES.items():
        try:
            figure = draw(results)
        except BadArgument as error:
            # A table without an optimum or with `full` alone has no ratios; the page says so.
            absent.append((name.replace("_", " "), str(error)))
            continue
        text = f"{figure.get_suptitle().strip()}. {figure.get_supxlabel()}"
        figures.append((name, _save(figure, folder / "figures" / name), text))
    summary, setting = summary_table(results), Setting.of(results)
    save_results(results, folder / "results.parquet")
    save_results(results, folder / "results.csv")
    save_results(summary, folder / "summary.csv")
    page = _template().render(
        setting=setting,
        glance=glance(results, summary, setting),
        by_budget=table_by_budget(results, summary, setting),
        provenance=_readable(results.attrs.get("provenance", {})),
        figures=figures,
        absent=absent,
        summary=summary.to_dict("records"),
        parameters=_parameters(results),
    )
    (folder / "index.html").write_text(page, encoding="utf-8")


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


def _readable(provenance):
    return {
        key.replace("_", " "): ", ".join(f"{k} {v}" for k, v in value.items())
        if isinstance(value, dict)
        else ", ".join(map(str, value))
        if isinstance(value, list | tuple)
        else value
        for key, value in provenance.items()
    }


def _parameters(results):
    columns = ["policy", "budget", "budget_tokens", "parameters", "seed"]
    lines = results[columns].drop_duplicates().to_dict("records")
    return [line | {"future": sees_the_future(line["policy"])} for line in lines]


def _number(value, digits=4):
    return "–" if pd.isna(value) else f"{value:.{digits}f}"


def _template():
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("h2o_theory.report", "."), autoescape=True
    )
    environment.filters["number"] = _number
    return environment.get_template("page.html.j2")
