"""The exact offline optimum of retained mass, with certificates, and what surrounds it.

Rows of one kv_head (mean over its query heads) go through :func:`to_fixed_point`; then

- :func:`optimum_curve` solves all budgets up to one, :func:`optimum_at` a single one, both
  exactly; :func:`check_certificate` proves it again from the rows alone;
- :func:`optimum_interval` bounds one budget from both sides where the trace is too long;
- :func:`protect` reduces a protected recent window and sinks to the plain problem;
- :func:`split_budget` divides a total over heads, :func:`pooled_bound` says what more is possible;
- :func:`belady_min` and :func:`weighted_paging` solve paging, where entries can be fetched back;
- :func:`concave_optimum` and :func:`concave_interval` take rows with diminishing returns.

Rows of known character to try it on are made by :mod:`h2o_theory.instances`.
"""

from h2o_theory.optimum.certificate import Certificate, check_certificate
from h2o_theory.optimum.concave import ConcaveInterval, concave_interval, concave_upper
from h2o_theory.optimum.concave_milp import concave_optimum
from h2o_theory.optimum.curve import BudgetCurve, optimum_curve
from h2o_theory.optimum.fixed_point import FRACTION_BITS, UNITS, to_fixed_point
from h2o_theory.optimum.interval import OptimumInterval, optimum_interval
from h2o_theory.optimum.paging import Paging, belady_min, weighted_paging
from h2o_theory.optimum.pooled import PooledBound, pooled_bound
from h2o_theory.optimum.protect import Protected, protect
from h2o_theory.optimum.schedule import Schedule
from h2o_theory.optimum.shapes import Shape, capped, linear, log_saturation, square_root
from h2o_theory.optimum.single import optimum_at
from h2o_theory.optimum.split import Split, split_budget

__all__ = [
    "FRACTION_BITS",
    "UNITS",
    "BudgetCurve",
    "Certificate",
    "ConcaveInterval",
    "OptimumInterval",
    "Paging",
    "PooledBound",
    "Protected",
    "Schedule",
    "Shape",
    "Split",
    "belady_min",
    "capped",
    "check_certificate",
    "concave_interval",
    "concave_optimum",
    "concave_upper",
    "linear",
    "log_saturation",
    "optimum_at",
    "optimum_curve",
    "optimum_interval",
    "pooled_bound",
    "protect",
    "split_budget",
    "square_root",
    "to_fixed_point",
    "weighted_paging",
]
