"""The H2O paper's guarantee measured on recorded traces, step by step."""

from h2o_theory.guarantee.measure import measure_guarantee
from h2o_theory.guarantee.tables import MeasuredGuarantee

__all__ = ["MeasuredGuarantee", "measure_guarantee"]
