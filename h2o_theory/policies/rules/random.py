"""Random eviction, in the two forms that are often confused."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from h2o_theory.kernels import kernel
from h2o_theory.policies.base import CompiledPolicy, Context
from h2o_theory.policies.checks import require_one_of
from h2o_theory.policies.kernels import head_stream, uniform_hash
from h2o_theory.policies.parts import Parts, sinks_within
from h2o_theory.policies.registry import register

__all__ = ["Random"]


class Settings(NamedTuple):
    stream: float
    is_fresh: bool


@kernel(nogil=True)
def rate_random(t, n, cache, future, settings):
    """Draw a priority per entry: once and for all, or anew at every step."""
    step = t if settings.is_fresh else 0
    for i in range(n):
        cache.score[i] = uniform_hash(settings.stream, step, cache.position[i])


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
        super().__post_init__()
        require_one_of(self, "form", ("static", "fresh"))

    def parts(self, budget):
        """Optional sinks; the rest is held by priority."""
        n_sink = sinks_within(self, self.n_sink, budget, default=0)
        return Parts(n_sink, budget - n_sink, 0)

    def settings(self, context: Context) -> Settings:
        """The stream of this head, and whether draws are fresh."""
        return Settings(head_stream(context), self.form == "fresh")

    @property
    def nested(self):
        """Draws do not depend on what the cache holds."""
        return True
