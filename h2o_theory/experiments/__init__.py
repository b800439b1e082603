"""The paper's experiments at reduced scale, run in the model, each with intervals."""

from h2o_theory.experiments.registry import EXPERIMENTS, find_experiment
from h2o_theory.experiments.result import ExperimentResult, load_result, save_result
from h2o_theory.experiments.study import Study
from h2o_theory.experiments.texts import language_reference

__all__ = [
    "EXPERIMENTS",
    "ExperimentResult",
    "Study",
    "find_experiment",
    "language_reference",
    "load_result",
    "save_result",
]
