"""Figures: functions from a result table to a matplotlib Figure, without pyplot's global state."""

from h2o_theory.figures.allocation import allocation_figure
from h2o_theory.figures.guarantee import guarantee_figure
from h2o_theory.figures.heat import head_figure, head_subject
from h2o_theory.figures.looks import Look, policy_look
from h2o_theory.figures.mass import mass_figure
from h2o_theory.figures.ratio import lost_mass_figure, ratio_figure
from h2o_theory.figures.sparsity import sparsity_figure
from h2o_theory.figures.table import Setting

__all__ = [
    "Look",
    "Setting",
    "allocation_figure",
    "guarantee_figure",
    "head_figure",
    "head_subject",
    "lost_mass_figure",
    "mass_figure",
    "policy_look",
    "ratio_figure",
    "sparsity_figure",
]
