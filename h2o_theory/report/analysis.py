"""The page of an analysis: statements, figures and tables in one folder."""

from pathlib import Path

from h2o_theory.figures import (
    association_figure,
    evolution_figure,
    heavy_hitter_map_figure,
    layer_sparsity_figure,
    network_figure,
    overlap_figure,
    rank_mass_figure,
    support_figure,
)
from h2o_theory.figures.subject import Subject
from h2o_theory.report.folder import draw_all, new_folder, readable, template
from h2o_theory.report.results import save_results

__all__ = ["write_analysis"]

_FIGURES = {
    "rank_mass": rank_mass_figure,
    "heavy_hitters": heavy_hitter_map_figure,
    "past_and_future": evolution_figure,
    "overlap": overlap_figure,
    "association": association_figure,
    "network": network_figure,
    "sparsity": layer_sparsity_figure,
    "support": support_figure,
}


def write_analysis(analysis, out, *, overwrite=False, provenance=None):
    """Write ``index.html``, ``figures/*.png`` and ``*.svg``, ``tables/*.csv`` and ``*.parquet``.

    Everything is made in a hidden folder beside ``out``, which is renamed as the last step. The
    page carries its figures within itself and loads nothing.

    Parameters
    ----------
    analysis : Analysis
        From :func:`h2o_theory.analysis.analyze`.
    out : path
        The folder.
    overwrite : bool
        Replace an earlier analysis (a folder with ``index.html`` and ``tables/findings.csv``).
    provenance : dict, optional
        Printed at the end of the page.

    Returns
    -------
    pathlib.Path
        The page.

    Raises
    ------
    OutputExists
        If ``out`` exists and may not be replaced.
    CannotWrite
        For a place that cannot be written.
    """
    with new_folder(out, overwrite, ("index.html", "tables/findings.csv")) as folder:
        figures, absent = draw_all(_FIGURES, analysis, folder / "figures")
        (folder / "tables").mkdir()
        for name, table in analysis.tables.items():
            if len(table.columns):
                for ending in ("csv", "parquet"):
                    save_results(table, folder / "tables" / f"{name}.{ending}")
        tables = analysis.tables
        page = template("analysis.html.j2").render(
            subject=Subject.of(analysis),
            threshold=analysis.survey.threshold,
            findings=analysis.findings,
            figures=figures,
            absent=absent,
            heaviest=tables["heavy_hitters"].head(12).to_dict("records"),
            laws=tables["power_law"].to_dict("records"),
            measures=tables["measures"].to_dict("records"),
            missing=tables["not_enough_data"].to_dict("records"),
            tables=[(name, len(table)) for name, table in tables.items() if len(table.columns)],
            provenance=readable(provenance or {}),
        )
        (folder / "index.html").write_text(page, encoding="utf-8")
    return Path(out) / "index.html"
