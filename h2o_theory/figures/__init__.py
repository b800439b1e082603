"""Figures: functions from a result table or an analysis to a matplotlib Figure, without pyplot."""

from h2o_theory.figures.agreement import association_figure, overlap_figure
from h2o_theory.figures.allocation import allocation_figure
from h2o_theory.figures.evolution import evolution_figure
from h2o_theory.figures.guarantee import guarantee_figure
from h2o_theory.figures.heat import head_figure, head_subject
from h2o_theory.figures.heavy_hitter_map import heavy_hitter_map_figure
from h2o_theory.figures.layers import layer_sparsity_figure, support_figure
from h2o_theory.figures.looks import Look, policy_look
from h2o_theory.figures.mass import mass_figure
from h2o_theory.figures.network import network_figure
from h2o_theory.figures.rank_mass import rank_mass_figure
from h2o_theory.figures.ratio import lost_mass_figure, ratio_figure
from h2o_theory.figures.sparsity import sparsity_figure
from h2o_theory.figures.table import Setting

__all__ = [
    "Look",
    "Setting",
    "allocation_figure",
    "guarantee_figure",
    "association_figure",
    "evolution_figure",
    "head_figure",
    "head_subject",
    "heavy_hitter_map_figure",
    "layer_sparsity_figure",
    "lost_mass_figure",
    "mass_figure",
    "network_figure",
    "overlap_figure",
    "policy_look",
    "rank_mass_figure",
    "ratio_figure",
    "sparsity_figure",
    "support_figure",
]
