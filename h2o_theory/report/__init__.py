"""Results on disk, their summary, and the report: one HTML page with figures and tables."""

from h2o_theory.report.analysis import write_analysis
from h2o_theory.report.page import write_report
from h2o_theory.report.results import (
    check_destination,
    load_results,
    refuse_existing,
    save_figure,
    save_results,
)
from h2o_theory.report.summary import summary_table

__all__ = [
    "check_destination",
    "load_results",
    "refuse_existing",
    "save_figure",
    "save_results",
    "summary_table",
    "write_analysis",
    "write_report",
]
