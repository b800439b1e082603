"""Random eviction, in the two forms that are often confused."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from h2o_theory.policies.base import CompiledPolicy
from h2o_theory.policies.checks import require_one_of, require_whole_number
from h2o_theory.policies.parts import Parts, sinks_within
from h2o_theory.policies.registry import register

__all__ = ["Random", "head_stream", "uniform_hash"]


@njit(cache=True, nogil=True)
def uniform_hash(stream, t, j):
    """A number in [0, 1) that depends on nothing but its arguments (SplitMix64's finaliser).

    A counter-based draw needs no generator state, so a replay may be cut into blocks, resumed
    or reordered and still draw the same numbers.
    """
    z = np.uint64(stream) + np.uint64(t + 1) * np.uint64(0x9E3779B97F4A7C15)
    z ^= np.uint64(j + 1) * np.uint64(0xD1B54A32D192ED03)
    for _ in range(2):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return np.float64(z >> np.uint64(11)) / 9007199254740992.0


def head_stream(context):
    """The random stream of (seed, layer, kv_head): 52 bits, exact as a float."""
    key = np.random.SeedSequence([context.seed, context.layer, context.kv_head])
    return float(key.generate_state(1, np.uint64)[0] >> np.uint64(12))


@njit(cache=True, nogil=True)
def rate_random(t, b, n, position, score, per_slot, memory, table, settings):
    """Draw a priority per entry: once and for all, or anew at every step."""
    step = t if settings[1] != 0 else 0
    for i in range(n):
        score[i] = uniform_hash(settings[0], step, position[i])


@register
@dataclass(frozen=True)
class Random(CompiledPolicy):
    r"""Evict at random among the evictable entries.

    ``form=static``: token j draws one priority :math:`\pi_j \sim U[0,1)` and the lowest leaves.
    This is reservoir sampling: :math:`P(j \in S_t) = \min(1, (k-1)/t)` for every past j, and
    retained sets are nested across budgets. ``form=fresh``: a new draw at every step, so that
    survival decays geometrically with age.

    Guarantee: static keeps in expectation a share of at least (k-1)/T of the mass on past keys
    of any instance, which no online policy can beat by more than lower order on all instances.

    Draws depend on (seed, layer, kv_head, position, step) alone. The newcomer may be evicted.
    Source: folklore (reservoir sampling: Vitter 1985).
    """

    name: ClassVar[str] = "random"
    needs: ClassVar[str] = "positions"
    source: ClassVar[str] = "reservoir sampling, Vitter 1985"
    rate: ClassVar = rate_random

    form: str = "static"
    n_sink: int = 0

    def __post_init__(self):
        require_one_of(self, "form", ("static", "fresh"))
        require_whole_number(self, "n_sink", 0)

    def parts(self, budget):
        """Optional sinks; the rest is held by priority."""
        n_sink = sinks_within(self, self.n_sink, budget, default=0)
        return Parts(n_sink, budget - n_sink, 0)

    def settings(self, context):
        """The stream of this head, and whether draws are fresh."""
        return np.array([head_stream(context), float(self.form == "fresh")])

    @property
    def nested(self):
        """Draws do not depend on what the cache holds."""
        return True
