"""What a policy costs: entries held over time, bits of an entry, and its own bookkeeping."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from h2o_theory.costs.shapes import ModelShape
from h2o_theory.costs.workload import Workload
from h2o_theory.errors import BadArgument, BadBudget

__all__ = ["PolicyCost"]


@dataclass(frozen=True)
class PolicyCost:
    r"""A cache policy, as far as costs go.

    After t tokens a kv_head of layer l holds :math:`n_l(t) = \min(t, k_l)` entries.

    Attributes
    ----------
    name : str
    budget : tuple of float
        Entries of a kv_head, for all layers or layer by layer (a mean over its heads); empty for
        the full cache.
    bits : float
        Of a number of K and V, scales included; 0 for the model's own precision.
    bookkeeping : float
        Bytes it moves for each entry and head at a step, as a multiple of H2O's; 0 for none.
    slot_bytes : float
        Bytes it keeps beside each entry of a head.

    Examples
    --------
    >>> PolicyCost("h2o", (100,), bookkeeping=1).entries(30, 140)[0]
    np.float64(100.0)
    """

    name: str
    budget: tuple[float, ...] = ()
    bits: float = 0.0
    bookkeeping: float = 0.0
    slot_bytes: float = 0.0

    def __post_init__(self) -> None:
        if self.budget and min(self.budget) < 1:
            raise BadBudget("a budget must be at least 1 entry", where=self.name, got=self.budget)
        for name in ("bits", "bookkeeping", "slot_bytes"):
            if getattr(self, name) < 0:
                raise BadArgument(
                    f"{name} must be at least 0", where=self.name, got=getattr(self, name)
                )

    def entries(self, layers: int, tokens: float) -> NDArray[np.float64]:
        """Entries of a kv_head in each layer after so many tokens, float64 [layers].

        Raises
        ------
        BadBudget
            If budgets by layer are not as many as the layers.
        """
        if not self.budget:
            return np.full(layers, float(tokens), dtype=np.float64)
        if len(self.budget) not in (1, layers):
            raise BadBudget(
                "budgets by layer must be as many as the model's layers",
                where=self.name,
                got=len(self.budget),
                expected=layers,
            )
        held = np.broadcast_to(np.asarray(self.budget, dtype=np.float64), layers)
        return np.asarray(np.minimum(held, float(tokens)))

    def mean_entries(self, layers: int, workload: Workload) -> NDArray[np.float64]:
        """The mean over the decoding steps, whose queries see prompt + 1, prompt + 2, ..."""
        held, steps = self.entries(layers, workload.tokens), workload.steps
        if not steps:
            return self.entries(layers, workload.prompt)
        # The first `growing` steps see one entry more each; the others see the budget.
        growing = np.clip(np.floor(held - workload.prompt), 0, steps)
        total = growing * (workload.prompt + (growing + 1) / 2) + (steps - growing) * held
        return np.asarray(total / steps)

    def entry_bytes(self, model: ModelShape) -> float:
        """Key and value of one token in one layer."""
        scale = self.bits / (8 * model.number_bytes) if self.bits else 1.0
        return model.entry_bytes * scale

    def check(self, workload: Workload) -> None:
        """Raise BadBudget for a budget above the length of the run."""
        if self.budget and max(self.budget) > workload.tokens:
            raise BadBudget(
                "a budget must be at most the length of the run",
                where=self.name,
                got=f"{max(self.budget):g} entries",
                expected=f"at most prompt + generate = {workload.tokens}",
            )
