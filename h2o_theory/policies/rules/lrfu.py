"""LRFU: the bridge between frequency and recency, with hard accesses or soft ones."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from h2o_theory.errors import BadArgument
from h2o_theory.kernels import kernel
from h2o_theory.policies.access import Access, access_of, least_access, resolve_access
from h2o_theory.policies.base import ROWS, CompiledPolicy, Context
from h2o_theory.policies.checks import require_one_of
from h2o_theory.policies.registry import register

__all__ = ["Lrfu"]


class Settings(NamedTuple):
    fade: float
    is_soft: bool
    access: Access


@kernel(nogil=True)
def observe_fading(t, n, cache, row, settings):
    """Fade all scores, then add the row or one per access."""
    least = 0.0 if settings.is_soft else least_access(settings.access, row, n)
    for i in range(n):
        cache.score[i] *= settings.fade
        if settings.is_soft:
            cache.score[i] += row[i]
        elif cache.position[i] == t or row[i] >= least:
            cache.score[i] += 1.0


@register
@dataclass(frozen=True)
class Lrfu(CompiledPolicy):
    r"""Evict the least combined recency and frequency.

    .. math:: C_t(j) = 2^{-\lambda} C_{t-1}(j) + x_t(j), \qquad
              u_t = \arg\min_{j \in S_t} C_t(j)

    with x the row itself (``access=soft``) or a hard access, 1 or 0, by one of the rules.
    Hard: :math:`\lambda = 0` is LFU; at :math:`\lambda = 1` the least recently used leaves, as in
    LRU, with earlier accesses deciding among equals. Soft: :math:`\lambda = 0` is the
    heavy-hitter rule without a window, and a large :math:`\lambda` TOVA on each kv_head alone.
    No guarantee known. O(k) per step.

    Source: Lee et al., LRFU, IEEE Trans. Computers 2001. Departure: no refetch, so counts end
    with residence.

    Parameters
    ----------
    lam : float
        :math:`\lambda \ge 0`.
    access : {"soft", "uniform", "relative", "top_m", "absolute"}
    threshold : float, optional
        Of a hard access; see :mod:`h2o_theory.policies.access`.
    rows : {"renormalised", "raw"}
        Raw only with soft accesses: a hard one is judged within the visible row.
    """

    name: ClassVar[str] = "lrfu"
    source: ClassVar[str] = "Lee et al. 2001"
    observe: ClassVar = observe_fading

    lam: float = 0.05
    access: str = "soft"
    threshold: float | None = None
    rows: str = "renormalised"

    def __post_init__(self):
        super().__post_init__()
        is_soft = self.access == "soft"
        if not is_soft or self.threshold is not None:
            resolve_access(self)
        require_one_of(self, "rows", ROWS if is_soft else ("renormalised",))
        if not 0 <= self.lam <= 64:
            raise BadArgument(
                "a policy parameter is out of range",
                where="lrfu:lam",
                got=self.lam,
                expected="from 0 to 64",
            )

    def settings(self, context: Context) -> Settings:
        """The factor per step, and the rule of hard accesses."""
        is_soft = self.access == "soft"
        return Settings(2.0**-self.lam, is_soft, Access(0, 0.0) if is_soft else access_of(self))

    @property
    def nested(self):
        """Raw rows do not depend on what the cache holds."""
        return self.rows == "raw"
