"""Key norm: short keys are attended to, long ones are not."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from h2o_theory.policies.base import CompiledPolicy
from h2o_theory.policies.registry import register

__all__ = ["KeyNorm"]

SHORTNESS = 0
"""Place of minus the key's norm among what is kept with an entry."""


@njit(cache=True, nogil=True)
def rate_feature(t, n, cache, future, settings):
    """The score is the first feature."""
    for i in range(n):
        cache.score[i] = cache.entry[i, SHORTNESS]


@register
@dataclass(frozen=True)
class KeyNorm(CompiledPolicy):
    r"""Evict the entry with the longest key.

    .. math:: u_t = \arg\max_{j \in S_t} \|k_j\|_2

    An observation, not a law: in many models keys of small norm receive much attention. It needs
    no attention at all. The newcomer may leave at once. No guarantee. O(k) per step.

    Source: arXiv 2406.11430. Departures: they leave the first two layers alone, which here is for
    the budgets to say.
    """

    name: ClassVar[str] = "key_norm"
    needs: ClassVar[str] = "keys"
    source: ClassVar[str] = "arXiv 2406.11430"
    rate: ClassVar = rate_feature

    @property
    def nested(self):
        """A norm does not depend on what the cache holds."""
        return True

    def features(self, context):
        """Minus the norm of each key."""
        return -np.linalg.norm(context.tensors.keys, axis=1, keepdims=True)
