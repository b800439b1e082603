"""The report: figures as PNG and SVG, tables, and one self-contained HTML page."""

from pathlib import Path

from h2o_theory.figures import (
    head_figure,
    lost_mass_figure,
    mass_figure,
    ratio_figure,
    sparsity_figure,
)
from h2o_theory.figures.table import Setting, check_results, one_budget_each
from h2o_theory.report.folder import draw_all, new_folder, readable, template
from h2o_theory.report.results import save_results
from h2o_theory.report.summary import summary_table
from h2o_theory.report.tables import glance, sees_the_future, table_by_budget

__all__ = ["write_report"]

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
        For a table that is not one experiment.
    CannotWrite
        For a place that cannot be written.
    """
    check_results(results)
    with new_folder(out, overwrite, ("index.html", "summary.csv")) as folder:
        _fill(folder, results)
    return Path(out) / "index.html"


def _fill(folder, results):
    save_results(results, folder / "results.parquet")
    save_results(results, folder / "results.csv")
    results = one_budget_each(results)
    # A table without an optimum or with `full` alone has no ratios; the page says so.
    figures, absent = draw_all(_FIGURES, results, folder / "figures")
    summary, setting = summary_table(results), Setting.of(results)
    save_results(summary, folder / "summary.csv")
    page = template("page.html.j2").render(
        setting=setting,
        glance=glance(results, summary, setting),
        by_budget=table_by_budget(results, summary, setting),
        provenance=readable(results.attrs.get("provenance", {})),
        figures=figures,
        absent=absent,
        summary=summary.to_dict("records"),
        parameters=_parameters(results),
    )
    (folder / "index.html").write_text(page, encoding="utf-8")


def _parameters(results):
    columns = ["policy", "budget", "budget_tokens", "parameters", "seed"]
    lines = results[columns].drop_duplicates().to_dict("records")
    return [line | {"future": sees_the_future(line["policy"])} for line in lines]
