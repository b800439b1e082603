"""The H2O paper's Algorithm 2, in two readings."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numba import njit

from h2o_theory.policies.base import CompiledPolicy, Context
from h2o_theory.policies.checks import require_one_of
from h2o_theory.policies.registry import register

__all__ = ["Algorithm2"]

READINGS = ("literal", "intent")
OWN_LOGIT = 0
"""Place of the token's own logit among what is kept with an entry."""


class Settings(NamedTuple):
    is_intent: bool
    first_step: int


@njit(cache=True, nogil=True)
def observe_algorithm2(t, n, cache, row, settings):
    """Once rows count, add the row over the older entries; the absent newcomer gets exp(0) / D."""
    if t < settings.first_step:
        return
    older = 0.0
    for i in range(n):
        if cache.position[i] != t:
            older += row[i]
    for i in range(n):
        if settings.is_intent:
            cache.score[i] += row[i]
        elif cache.position[i] != t:
            cache.score[i] += row[i] / older if older > 0.0 else 0.0
        elif row[i] > 0.0:
            # D = exp(own logit) * older / row: what the row holds of D, in units of exp(own logit).
            cache.score[i] += (
                np.exp(-cache.entry[i, OWN_LOGIT]) * row[i] / older if older > 0.0 else np.inf
            )


@register
@dataclass(frozen=True)
class Algorithm2(CompiledPolicy):
    r"""Evict the least accumulated attention, counted from the moment the cache is full.

    With S the retained set before step t, L the logits and :math:`D_t = \sum_{j \in S} e^{L_{tj}}`,

    .. math:: \tilde o_t(j) = \tilde o_{t-1}(j) + e^{L_{tj}} / D_t \ (j \in S), \qquad
              \tilde o_t(t) = e^0 / D_t, \qquad u_t = \arg\min_{j \in S \cup \{t\}} \tilde o_t(j)

    from step k - 1 on; before it nothing is added. ``literal``: the box does not take exp(0) off
    absent entries, so the newcomer starts with 1 / D_t, a number that depends on the absolute
    size of the logits. ``intent``: the newcomer starts with its own share of the row, normalised
    over S and itself. The concave h of the box cannot change the argmin and is left out.

    Source: arXiv 2306.14048, Algorithm 2. No guarantee that says anything: see Theorem 4.4 there.
    O(k) per step. Departures: the budget counts the query's own entry; under grouped queries the
    mean row and the mean own logit of the group stand for the single head of the paper; a softcap
    on the logits is not applied to the own logit.

    Parameters
    ----------
    reading : {"literal", "intent"}
    """

    name: ClassVar[str] = "algorithm2"
    needs: ClassVar[str] = "rows queries keys"
    source: ClassVar[str] = "arXiv 2306.14048, Algorithm 2"
    observe: ClassVar = observe_algorithm2

    reading: str = "literal"

    def __post_init__(self):
        super().__post_init__()
        require_one_of(self, "reading", READINGS)

    def features(self, context):
        """Each token's own logit, the mean over the group."""
        tensors = context.tensors
        own = np.einsum("gtd,td->t", tensors.queries, tensors.keys) / len(tensors.queries)
        return tensors.scaling * own[:, None]

    def settings(self, context: Context) -> Settings:
        """Which reading, and the first step that counts."""
        return Settings(self.reading == "intent", context.budget - 1)
