"""The exact offline optimum of retained mass, its budget curve, and certificates of optimality."""

from h2o_theory.optimum.certificate import Certificate, check_certificate
from h2o_theory.optimum.curve import BudgetCurve, optimum_curve
from h2o_theory.optimum.fixed_point import FRACTION_BITS, to_fixed_point
from h2o_theory.optimum.schedule import Schedule

__all__ = [
    "FRACTION_BITS",
    "BudgetCurve",
    "Certificate",
    "Schedule",
    "check_certificate",
    "optimum_curve",
    "to_fixed_point",
]
