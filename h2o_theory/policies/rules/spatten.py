"""SpAtten: one set for the whole model, by attention summed over heads and layers."""

from dataclasses import dataclass
from typing import ClassVar

from h2o_theory.policies.base import CompiledPolicy
from h2o_theory.policies.kernels import observe_sum
from h2o_theory.policies.registry import register

__all__ = ["SpAtten"]


@register
@dataclass(frozen=True)
class SpAtten(CompiledPolicy):
    r"""Evict, everywhere at once, the token with least attention from all heads of all layers.

    .. math:: s_t(j) = s_{t-1}(j) + \sum_{l, h} r^{l,h}_t(j), \qquad
              u_t = \arg\min_{j \in S_t} s_t(j)

    A token pruned in one layer is gone in all later ones (the cascade); with the same budget in
    every layer the layers' sets are then one set. The newcomer competes at once. No guarantee.
    O(L H k) per step for the model.

    Source: arXiv 2012.09852. Departures: a token leaves at the end of a step, after all layers
    have attended to it, rather than between two layers; budgets are equal in all layers instead
    of falling with depth; heads are not pruned. All recorded layers vote, whichever are replayed.
    The code released for language models is another rule (logits of the last forward pass).

    Parameters
    ----------
    rows : {"renormalised", "raw"}
    """

    name: ClassVar[str] = "spatten"
    source: ClassVar[str] = "arXiv 2012.09852"
    observe: ClassVar = observe_sum
    group: ClassVar[str] = "sum"

    rows: str = "renormalised"

    @property
    def scope(self):
        """All heads of all layers."""
        return "model"

    @property
    def nested(self):
        """Raw rows do not depend on what the cache holds."""
        return self.rows == "raw"
