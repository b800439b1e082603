"""KeyDiff: keep keys that differ from the average key."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from h2o_theory.policies.base import CompiledPolicy
from h2o_theory.policies.registry import register

__all__ = ["KeyDiff"]


@njit(cache=True, nogil=True)
def rate_difference(t, n, cache, future, settings):
    """Minus the cosine of each key with the mean direction, to nine digits."""
    width = cache.entry.shape[1]
    anchor = np.zeros(width)
    for i in range(n):
        for d in range(width):
            anchor[d] += cache.entry[i, d]
    size = np.sqrt((anchor**2).sum())
    for i in range(n):
        cosine = 0.0
        for d in range(width):
            cosine += cache.entry[i, d] * anchor[d]
        cache.score[i] = -np.rint(1e9 * cosine / size) if size > 0.0 else 0.0


@register
@dataclass(frozen=True)
class KeyDiff(CompiledPolicy):
    r"""Evict the key that is most like the average of the cached keys.

    .. math:: u_t = \arg\max_{j \in S_t} \frac{\langle k_j, a_t \rangle}{\|k_j\| \|a_t\|}, \qquad
              a_t = \sum_{j \in S_t} k_j / \|k_j\|

    Similar keys compete for the same attention, so a key of its own is worth more. Cosines are
    compared to nine digits: two keys are equally far from their mean, up to rounding. It needs no
    attention. No guarantee. O(k d) per step.

    Source: arXiv 2504.15364. Departures: one entry leaves per step rather than a block.
    """

    name: ClassVar[str] = "key_diff"
    needs: ClassVar[str] = "keys"
    source: ClassVar[str] = "arXiv 2504.15364"
    rate: ClassVar = rate_difference

    def features(self, context):
        """The direction of each key."""
        keys = context.tensors.keys
        norms = np.linalg.norm(keys, axis=1, keepdims=True)
        return np.divide(keys, norms, out=np.zeros_like(keys), where=norms > 0)
