"""Keyformer: accumulated attention after Gumbel noise and a rising temperature."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from h2o_theory.errors import BadArgument
from h2o_theory.kernels import kernel
from h2o_theory.policies.base import CompiledPolicy, Context
from h2o_theory.policies.checks import require_one_of
from h2o_theory.policies.kernels import head_stream, uniform_hash
from h2o_theory.policies.parts import Parts, heavy_part
from h2o_theory.policies.registry import register

__all__ = ["Keyformer"]


class Settings(NamedTuple):
    stream: float
    noise: float
    tau_first: float
    tau_last: float
    tokens: int
    unscored: int


@kernel(nogil=True)
def observe_noisy(t, n, cache, row, settings):
    """Add the softmax of (log row + noise) / temperature to the scores."""
    noise, first, last = settings.noise, settings.tau_first, settings.tau_last
    temperature = first + (last - first) * t / max(settings.tokens - 1.0, 1.0)
    weight = cache.memory
    largest = -np.inf
    for i in range(n):
        weight[i] = -np.inf
        if row[i] > 0.0:
            drawn = uniform_hash(settings.stream, t, cache.position[i])
            gumbel = -np.log(-np.log(drawn + 2.0**-60)) if noise > 0.0 else 0.0
            weight[i] = (np.log(row[i]) + noise * gumbel) / temperature
        largest = max(largest, weight[i])
    total = 0.0
    for i in range(n):
        weight[i] = np.exp(weight[i] - largest) if largest > -np.inf else 0.0
        total += weight[i]
    for i in range(n):
        if cache.position[i] < settings.unscored:
            cache.score[i] += weight[i] / total if total > 0.0 else 0.0


@register
@dataclass(frozen=True)
class Keyformer(CompiledPolicy):
    r"""Accumulate a noisy, flattened row and keep the highest scores and a recent window.

    .. math:: s_t(j) = s_{t-1}(j) + \mathrm{softmax}_j \frac{\log \hat A[t, j] + g_{t,j}}{\tau_t},
              \qquad \tau_t = \tau_0 + (\tau_1 - \tau_0) \frac{t}{T-1}

    with g standard Gumbel draws, fresh for every row and key, from the head's seeded stream.
    Logits equal log-probabilities up to a constant of the row, which the softmax ignores.
    ``noise=0`` is the control without noise. No guarantee known. O(k) per step.

    ``form=code`` is what the released code does: an entry that leaves the window is hidden for one
    row, which takes its score for good, so that generated tokens never become heavy and the heavy
    entries are the prompt's. Here their score stays 0; without a prefill it is the sliding window.

    Source: arXiv 2403.09054 (window 30 % of the budget, temperature 1 to 2). Departures: the noise
    is seeded, and under grouped queries the rows are averaged over the group before the noise.

    Parameters
    ----------
    recent : float
        Share of the budget for the recent window; it holds at least the query's own entry.
    tau_first, tau_last : float
        Temperature at the first and at the last row.
    noise : float
        Factor on the Gumbel draws.
    form : {"paper", "code"}
    """

    name: ClassVar[str] = "keyformer"
    source: ClassVar[str] = "arXiv 2403.09054"
    observe: ClassVar = observe_noisy

    recent: float = 0.3
    tau_first: float = 1.0
    tau_last: float = 2.0
    noise: float = 1.0
    form: str = "paper"

    def __post_init__(self):
        super().__post_init__()
        require_one_of(self, "form", ("paper", "code"))
        if not min(self.tau_first, self.tau_last) > 0 <= self.noise:
            raise BadArgument(
                "a policy parameter is out of range",
                where="keyformer",
                got=f"tau {self.tau_first} to {self.tau_last}, noise={self.noise}",
                expected="temperatures above 0, noise of at least 0",
            )

    def parts(self, budget):
        """The share ``1 - recent`` is heavy, rounded down."""
        n_heavy = heavy_part(self.recent, budget)
        return Parts(0, n_heavy, budget - n_heavy)

    def settings(self, context: Context) -> Settings:
        """Stream, noise, temperatures, T and the first position that gets no score."""
        stream, tokens = head_stream(context), context.tokens
        unscored = context.prefill if self.form == "code" else tokens
        return Settings(stream, self.noise, self.tau_first, self.tau_last, tokens, unscored)

    def sizes(self, context):
        """A work row."""
        return 0, context.tokens + 1
