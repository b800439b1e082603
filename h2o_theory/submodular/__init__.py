"""Set functions, maximisers with certificates, and what follows for eviction one step at a time.

- :func:`modular`, :func:`row_sums`, :func:`coverage`, :func:`facility_location` and others make
  set functions with declared properties; :func:`set_function` takes your own callable;
- :func:`refute` searches for subsets at which a declared property fails;
- :func:`greedy`, :func:`lazy_greedy` and others maximise; each answer carries an upper bound,
  which :func:`check_answer` proves again from f alone;
- :func:`total_curvature`, :func:`submodularity_ratio` and others say how good greedy must be.
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
from h2o_theory.submodular.certificate import AnswerCheck, check_answer
from h2o_theory.submodular.coverage import coverage, saturated_coverage, weighted_coverage
from h2o_theory.submodular.curvature import (
    greedy_curvature,
    submodularity_ratio,
    total_curvature,
)
from h2o_theory.submodular.definitions import DEFINITIONS
from h2o_theory.submodular.exhaustive import exhaustive_maximum
from h2o_theory.submodular.facility_location import facility_location, key_similarity
from h2o_theory.submodular.greedy import greedy, lazy_greedy, noisy_greedy, stochastic_greedy
from h2o_theory.submodular.local_search import local_search
from h2o_theory.submodular.log_det import log_det
from h2o_theory.submodular.milp import milp_optimum
from h2o_theory.submodular.refute import Counterexample, Refutation, refute, refute_declared
from h2o_theory.submodular.result import Guarantee, Maximised
from h2o_theory.submodular.row_sums import (
    budget_additive,
    concave_of_modular,
    modular,
    row_sums,
)
from h2o_theory.submodular.set_function import Properties, Selection, SetFunction, set_function
from h2o_theory.submodular.simple import removal_greedy, top_k
from h2o_theory.submodular.streaming import preemptive_swap, sieve_streaming, weighted_swap

__all__ = [
    "DEFINITIONS",
    "AnswerCheck",
    "Counterexample",
    "Guarantee",
    "Maximised",
    "Properties",
    "Refutation",
    "Selection",
    "SetFunction",
    "budget_additive",
    "check_answer",
    "concave_of_modular",
    "coverage",
    "curvature_factor",
    "exhaustive_maximum",
    "facility_location",
    "greedy",
    "greedy_curvature",
    "greedy_curvature_factor",
    "greedy_factor",
    "key_similarity",
    "lazy_greedy",
    "local_search",
    "log_det",
    "milp_optimum",
    "modular",
    "noisy_greedy",
    "noisy_greedy_bound",
    "online_bound",
    "preemptive_swap",
    "prefix_bound",
    "ratio_factor",
    "refute",
    "refute_declared",
    "removal_greedy",
    "row_sums",
    "saturated_coverage",
    "set_function",
    "sieve_streaming",
    "stochastic_greedy",
    "submodularity_ratio",
    "top_k",
    "total_curvature",
    "weighted_coverage",
    "weighted_swap",
]
