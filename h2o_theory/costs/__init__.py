"""From a budget to tokens per second: a model of what one generation costs.

Pure arithmetic over named quantities with units. Its constants are fitted on some of the released
logs of H2O and tested on the others: see :mod:`h2o_theory.costs.fit`.
"""

from h2o_theory.costs.case import Case
from h2o_theory.costs.constants import Constants
from h2o_theory.costs.contract import policy_cost
from h2o_theory.costs.estimate import CostEstimate, estimate
from h2o_theory.costs.fit import constants_for
from h2o_theory.costs.hardware import Hardware, find_hardware
from h2o_theory.costs.memory import largest_batch, peak_memory
from h2o_theory.costs.policy import PolicyCost
from h2o_theory.costs.shapes import ModelShape, find_shape, shape_from_config
from h2o_theory.costs.systems import System, find_system
from h2o_theory.costs.workload import Placement, Workload, parse_placement

__all__ = [
    "Case",
    "Constants",
    "CostEstimate",
    "Hardware",
    "ModelShape",
    "Placement",
    "PolicyCost",
    "System",
    "Workload",
    "constants_for",
    "estimate",
    "find_hardware",
    "find_shape",
    "find_system",
    "largest_batch",
    "parse_placement",
    "peak_memory",
    "policy_cost",
    "shape_from_config",
]
