"""The experiments by name, each with what the command line runs by default."""

from dataclasses import dataclass

from h2o_theory.errors import BadArgument
from h2o_theory.experiments.budgets import budget_ladder
from h2o_theory.experiments.choice import multiple_choice
from h2o_theory.experiments.fidelity import fidelity
from h2o_theory.experiments.global_statistics import local_against_global
from h2o_theory.experiments.quantised import quantised_cache
from h2o_theory.experiments.removal import mask_heavy_hitters
from h2o_theory.experiments.sparse import sparse_masks
from h2o_theory.experiments.streaming import long_text

__all__ = ["EXPERIMENTS", "Experiment", "find_experiment"]


@dataclass(frozen=True)
class Experiment:
    """An experiment and its default size.

    Attributes
    ----------
    run : callable (study) -> ExperimentResult
    tokens, windows : int
    statements : str
        Ids of the paper's statements in the register of checks; empty if there is none.
    """

    run: object
    tokens: int
    windows: int
    statements: str


EXPERIMENTS = {
    "ladder": Experiment(budget_ladder, 512, 4, "obs-h2o-20 obs-ablation"),
    "removal": Experiment(mask_heavy_hitters, 512, 2, "obs-removal"),
    "statistics": Experiment(local_against_global, 512, 2, "obs-local-global"),
    "streaming": Experiment(long_text, 4096, 1, "obs-streaming"),
    "quantised": Experiment(quantised_cache, 512, 2, "obs-quant"),
    "masks": Experiment(sparse_masks, 512, 2, "obs-sparse-transformer obs-topk"),
    "choice": Experiment(multiple_choice, 64, 1, "obs-shots"),
    "fidelity": Experiment(fidelity, 512, 2, ""),
}


def find_experiment(name):
    """The experiment of that name; raises BadArgument with those there are."""
    if name not in EXPERIMENTS:
        raise BadArgument(
            "there is no such experiment", got=repr(name), expected=", ".join(EXPERIMENTS)
        )
    return EXPERIMENTS[name]
