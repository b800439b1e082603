"""Statistics on plain arrays: concentration, power laws, rank correlation, intervals, survival."""

from h2o_theory.statistics.concentration import (
    concentration_profile,
    effective_support,
    entropy,
    gini,
    support_for,
    top_count,
    top_share,
)
from h2o_theory.statistics.power_law import PowerLaw, fit_power_law, goodness_of_fit
from h2o_theory.statistics.rank import (
    Permutation,
    kendall,
    partial_permutation,
    partial_rank_correlation,
    partial_spearman,
    permutation_within,
    spearman,
)
from h2o_theory.statistics.resample import (
    Interval,
    block_draws,
    percentile_interval,
    ratio_interval,
    share_interval,
)
from h2o_theory.statistics.survival import median_survival, survival_curve
from h2o_theory.statistics.tails import ALTERNATIVES, LawComparison, compare_laws

__all__ = [
    "ALTERNATIVES",
    "LawComparison",
    "Interval",
    "Permutation",
    "PowerLaw",
    "block_draws",
    "compare_laws",
    "concentration_profile",
    "effective_support",
    "entropy",
    "fit_power_law",
    "gini",
    "goodness_of_fit",
    "kendall",
    "median_survival",
    "partial_permutation",
    "partial_rank_correlation",
    "partial_spearman",
    "percentile_interval",
    "permutation_within",
    "ratio_interval",
    "share_interval",
    "spearman",
    "support_for",
    "survival_curve",
    "top_count",
    "top_share",
]
