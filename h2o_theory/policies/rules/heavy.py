"""Heavy hitters alone: accumulated attention without a recent window."""

from dataclasses import dataclass
from typing import ClassVar

from h2o_theory.policies.base import CompiledPolicy
from h2o_theory.policies.kernels import observe_sum
from h2o_theory.policies.registry import register

__all__ = ["Heavy"]


@register
@dataclass(frozen=True)
class Heavy(CompiledPolicy):
    r"""H2O without its recent window: evict the least accumulated attention, newcomer included.

    .. math:: s_t(j) = s_{t-1}(j) + r_t(j), \qquad u_t = \arg\min_{j \in S_t} s_t(j)

    A newcomer competes after a single row against veterans' sums, so the set tends to freeze
    on the first tokens. This is the evident intent of the paper's Algorithm 1 (scores
    accumulated, the newcomer's own row included), not its literal reading.

    Source: "heavy hitters only" ablation, arXiv 2306.14048, C.6. No guarantee known. O(k) a step.
    """

    name: ClassVar[str] = "heavy"
    source: ClassVar[str] = "arXiv 2306.14048, C.6"
    observe: ClassVar = observe_sum

    rows: str = "renormalised"
    group: str = "mean"

    @property
    def nested(self):
        """Raw rows do not depend on what the cache holds."""
        return self.rows == "raw"
