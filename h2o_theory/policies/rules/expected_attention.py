"""Expected attention: what queries like those seen so far will make of each key."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numba import njit

from h2o_theory.policies.base import CompiledPolicy, Context
from h2o_theory.policies.checks import require_whole_number
from h2o_theory.policies.kernels import Vector
from h2o_theory.policies.parts import Parts, sinks_within
from h2o_theory.policies.registry import register

__all__ = ["ExpectedAttention"]

COUNT = 0
"""Place in the memory of the number of queries; each head's sums and products follow it."""


class Settings(NamedTuple):
    n_sink: int
    group: int
    width: int
    speed: Vector
    cos: Vector
    sin: Vector


@njit(cache=True, nogil=True)
def observe_query(t, n, cache, row, settings):
    """Add the newcomer's queries to the sums of queries and of their products."""
    group, width = settings.group, settings.width
    if t < settings.n_sink:
        return
    for i in range(n):
        if cache.position[i] != t:
            continue
        cache.memory[COUNT] += 1.0
        for g in range(group):
            query = cache.entry[i, width + 1 + g * width : width + 1 + (g + 1) * width]
            start = 1 + g * width * (width + 1)
            for a in range(width):
                cache.memory[start + a] += query[a]
                for c in range(width):
                    cache.memory[start + width + a * width + c] += query[a] * query[c]


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def expected_logit(key, sums, count, width):
    """Log of the mean of exp(q . key) over Gaussian queries of the given moments."""
    mean, square = 0.0, 0.0
    for a in range(width):
        inner = 0.0
        for c in range(width):
            inner += sums[width + a * width + c] * key[c]
        mean += sums[a] * key[a]
        square += inner * key[a]
    mean /= count
    return mean + 0.5 * max(square / count - mean * mean, 0.0)


@njit(cache=True, nogil=True)
def rate_expected(t, n, cache, future, settings):
    """The softmax over the entries of the expected logits, mean over the group, times the norm."""
    group, width, half = settings.group, settings.width, settings.speed.size
    count = max(cache.memory[COUNT], 1.0)
    keys, logits = np.empty((n, width)), np.empty(n)
    for i in range(n):
        keys[i] = cache.entry[i, :width]
        for f in range(half):
            angle = t * settings.speed[f]
            ahead, aside = settings.cos[f], settings.sin[f]
            c = np.cos(angle) * ahead - np.sin(angle) * aside
            s = np.sin(angle) * ahead + np.cos(angle) * aside
            keys[i, f] = c * cache.entry[i, f] + s * cache.entry[i, f + half]
            keys[i, f + half] = c * cache.entry[i, f + half] - s * cache.entry[i, f]
        cache.score[i] = 0.0
    for g in range(group):
        start = 1 + g * width * (width + 1)
        for i in range(n):
            logits[i] = expected_logit(keys[i], cache.memory[start:], count, width)
        logits -= logits.max()
        weights = np.exp(logits)
        weights /= weights.sum()
        for i in range(n):
            cache.score[i] += weights[i] / group * cache.entry[i, width]


@register
@dataclass(frozen=True)
class ExpectedAttention(CompiledPolicy):
    r"""Evict the key whose expected future attention, times the size of its value, is smallest.

    Queries before rotary embedding are taken for Gaussian with the mean :math:`\mu_t` and the
    covariance :math:`\Sigma_t` of those seen so far; with :math:`\bar R_t` the mean rotation
    over the next ``ahead`` positions and :math:`k_j` scaled as in the logits,

    .. math:: z_t(j) = \langle \bar R_t \mu_t, k_j \rangle
              + \tfrac12 k_j^T \bar R_t \Sigma_t \bar R_t^T k_j, \qquad
              u_t = \arg\min_{j \in S_t} \|v_j\|_2 \ \frac1G \sum_g \mathrm{softmax}_{S_t}(z^g_t)(j)

    It sees no attention. No guarantee. O(G k d^2) per step, which a sweep notices.

    Source: arXiv 2510.00636 and NVIDIA/kvpress (512 positions ahead, 4 sinks, covariance and norm
    on). Departures: it moves on with the text, one entry per step, where they cut the prompt
    once; the rotation is averaged before the exponential, as they do; the first tokens, which
    are protected, do not enter the statistics.

    Parameters
    ----------
    ahead : int
        Positions the rotation is averaged over.
    n_sink : int
        The default shrinks to fit.
    """

    name: ClassVar[str] = "expected_attention"
    needs: ClassVar[str] = "unrotated keys values"
    source: ClassVar[str] = "arXiv 2510.00636"
    observe: ClassVar = observe_query
    rate: ClassVar = rate_expected

    ahead: int = 512
    n_sink: int = 4

    def __post_init__(self):
        super().__post_init__()
        require_whole_number(self, "ahead", 1)

    def parts(self, budget):
        """Sinks; the rest by score."""
        n_sink = sinks_within(self, self.n_sink, budget, default=4)
        return Parts(n_sink, budget - n_sink, 0)

    def features(self, context):
        """Scaled key, norm of the value, queries of the group before rotary embedding."""
        tensors = context.tensors
        queries = np.concatenate(list(tensors.unrotated), axis=1)
        norms = np.linalg.norm(tensors.values, axis=1, keepdims=True)
        return np.concatenate([tensors.scaling * tensors.keys, norms, queries], axis=1)

    def settings(self, context: Context) -> Settings:
        """Sinks, G, d, and per frequency the angle and the mean cosine and sine ahead."""
        group, _, width = context.tensors.unrotated.shape
        theta, rotated = context.tensors.rotary or (1.0, 0)
        half = rotated // 2
        speed = theta ** (-np.arange(half) / max(half, 1))
        angles = np.arange(1, self.ahead + 1)[:, None] * speed
        n_sink = self.parts(context.budget).n_sink
        cos, sin = np.cos(angles).mean(axis=0), np.sin(angles).mean(axis=0)
        return Settings(n_sink, group, width, speed, cos, sin)

    def sizes(self, context):
        """How many queries, their sum and the sum of their products, per query head."""
        group, _, width = context.tensors.unrotated.shape
        return 0, 1 + group * width * (width + 1)
