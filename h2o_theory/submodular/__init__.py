"""Set functions, maximisers with certificates, and what follows for eviction one step at a time.

- :func:`modular`, :func:`row_sums`, :func:`coverage`, :func:`facility_location` and others make
  set functions with declared properties; :func:`set_function` takes your own callable;
- :func:`refute` searches for subsets at which a declared property fails;
- :func:`greedy`, :func:`lazy_greedy` and others maximise; each answer carries an upper bound.
"""

from h2o_theory.submodular.bounds import (
    curvature_factor,
    greedy_curvature_factor,
    greedy_factor,
    noisy_greedy_bound,
    online_bound,
    prefix_bound,
    ratio_factor,
)
from h2o_theory.submodular.coverage import coverage, saturated_coverage, weighted_coverage
from h2o_theory.submodular.definitions import DEFINITIONS
from h2o_theory.submodular.facility_location import facility_location, key_similarity
from h2o_theory.submodular.greedy import greedy, lazy_greedy, noisy_greedy, stochastic_greedy
from h2o_theory.submodular.log_det import log_det
from h2o_theory.submodular.refute import Counterexample, Refutation, refute, refute_declared
from h2o_theory.submodular.result import Guarantee, Maximised
from h2o_theory.submodular.row_sums import (
    budget_additive,
    concave_of_modular,
    modular,
    row_sums,
)
from h2o_theory.submodular.set_function import Properties, Selection, SetFunction, set_function

__all__ = [
    "DEFINITIONS",
    "Counterexample",
    "Guarantee",
    "Maximised",
    "Properties",
    "Refutation",
    "Selection",
    "SetFunction",
    "budget_additive",
    "concave_of_modular",
    "coverage",
    "curvature_factor",
    "facility_location",
    "greedy",
    "greedy_curvature_factor",
    "greedy_factor",
    "key_similarity",
    "lazy_greedy",
    "log_det",
    "modular",
    "noisy_greedy",
    "noisy_greedy_bound",
    "online_bound",
    "prefix_bound",
    "ratio_factor",
    "refute",
    "refute_declared",
    "row_sums",
    "saturated_coverage",
    "set_function",
    "stochastic_greedy",
    "weighted_coverage",
]
