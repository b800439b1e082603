"""Belady's idea for masses: evict the entry with the least attention still to come."""

from dataclasses import dataclass
from typing import ClassVar

from h2o_theory.policies.base import CompiledPolicy
from h2o_theory.policies.checks import require_whole_number
from h2o_theory.policies.kernels import future_sums, rate_by_future
from h2o_theory.policies.registry import register

__all__ = ["BeladyMass"]


@register
@dataclass(frozen=True)
class BeladyMass(CompiledPolicy):
    r"""Evict the entry with the least remaining future mass.

    .. math:: u_t = \arg\min_{j \in S_t} \sum_{t < t' \le t + w} A[t', j]

    Clairvoyant, on the recorded full rows averaged over the group. Not optimal: a token may be
    worth much later and cost many entries until then. O(T^2) time, 8 T^2 bytes for the table.

    Source: the future-sum oracle of the KV-cache literature. No guarantee.

    Parameters
    ----------
    w : int, optional
        Rows of look-ahead, at least 1; all by default.
    """

    name: ClassVar[str] = "belady_mass"
    kind: ClassVar[str] = "clairvoyant"
    source: ClassVar[str] = "future-sum oracle"
    rate: ClassVar = rate_by_future

    w: int | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.w is not None:
            require_whole_number(self, "w", 1)

    def table(self, mean_rows):
        """Sums over the rows after t, or over the next w of them."""
        return future_sums(mean_rows, self.w)
