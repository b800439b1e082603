"""Set functions, maximisers with certificates, and what follows for eviction one step at a time.

- :func:`modular`, :func:`row_sums`, :func:`coverage`, :func:`facility_location` and others make
  set functions with declared properties; :func:`set_function` takes your own callable;
- :func:`refute` searches for subsets at which a declared property fails;
- :func:`greedy`, :func:`lazy_greedy`, :func:`noisy_greedy`, :func:`top_k` (what a sum of scores
  chooses), :func:`removal_greedy` (eviction down to k) and :func:`exhaustive_maximum` maximise;
  each answer carries an upper bound, which :func:`check_answer` proves again from f alone;
- :func:`greedy_factor`, :func:`curvature_factor` and :func:`noisy_greedy_bound` say what greedy
  reaches at least: on any f, at total curvature c, and where gains are seen with an error, as when
  scores are approximate (Corollary D.18);
- :func:`make_reading` reads ``F(Z, t, .)`` off attention rows, :func:`measure_conditions` follows a
  schedule through it, and :func:`repaired_bound` says what that guarantees.

::

    f = row_sums(rows, square_root())          # attention rows [T, T], h(m) = sqrt(m)
    best = lazy_greedy(f, 51)                  # best.value <= optimum <= best.upper
    check_answer(f, best).ratio                # proved again from f alone
    refute(f, "submodular").counterexample     # None
"""

from h2o_theory.submodular.bounds import (
    curvature_factor,
    greedy_factor,
    noisy_greedy_bound,
    online_bound,
    prefix_bound,
    total_curvature,
)
from h2o_theory.submodular.certificate import AnswerCheck, check_answer
from h2o_theory.submodular.conditions import Conditions, measure_conditions
from h2o_theory.submodular.coverage import coverage, weighted_coverage
from h2o_theory.submodular.definitions import DEFINITIONS
from h2o_theory.submodular.dynamic import Best, DynamicFunction, dynamic_function
from h2o_theory.submodular.exhaustive import exhaustive_maximum
from h2o_theory.submodular.facility_location import facility_location, key_similarity
from h2o_theory.submodular.greedy import greedy, lazy_greedy, noisy_greedy
from h2o_theory.submodular.log_det import log_det
from h2o_theory.submodular.paper_bound import (
    GuaranteeBounds,
    Premises,
    guarantee_bounds,
    paper_premises,
)
from h2o_theory.submodular.readings import READINGS, make_reading
from h2o_theory.submodular.refute import Counterexample, Refutation, refute, refute_declared
from h2o_theory.submodular.refute_dynamic import refute_dynamic
from h2o_theory.submodular.repaired import direct_bound, repaired_bound
from h2o_theory.submodular.result import ApproximationGuarantee, Maximised
from h2o_theory.submodular.row_sums import (
    budget_additive,
    concave_of_modular,
    modular,
    row_sums,
)
from h2o_theory.submodular.set_function import Properties, Selection, SetFunction
from h2o_theory.submodular.simple import removal_greedy, top_k
from h2o_theory.submodular.trajectory import Trajectory, steps_with_a_choice
from h2o_theory.submodular.user_function import set_function
from h2o_theory.submodular.weighted_reading import largest_excess

__all__ = [
    "DEFINITIONS",
    "READINGS",
    "AnswerCheck",
    "Best",
    "Conditions",
    "Counterexample",
    "DynamicFunction",
    "ApproximationGuarantee",
    "GuaranteeBounds",
    "Maximised",
    "Premises",
    "Properties",
    "Refutation",
    "Selection",
    "SetFunction",
    "Trajectory",
    "budget_additive",
    "check_answer",
    "concave_of_modular",
    "coverage",
    "direct_bound",
    "curvature_factor",
    "dynamic_function",
    "exhaustive_maximum",
    "facility_location",
    "greedy",
    "greedy_factor",
    "guarantee_bounds",
    "key_similarity",
    "largest_excess",
    "lazy_greedy",
    "log_det",
    "make_reading",
    "measure_conditions",
    "modular",
    "noisy_greedy",
    "noisy_greedy_bound",
    "online_bound",
    "paper_premises",
    "prefix_bound",
    "refute",
    "refute_declared",
    "refute_dynamic",
    "removal_greedy",
    "repaired_bound",
    "row_sums",
    "set_function",
    "steps_with_a_choice",
    "top_k",
    "total_curvature",
    "weighted_coverage",
]
