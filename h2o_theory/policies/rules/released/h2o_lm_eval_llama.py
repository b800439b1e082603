"""H2O as the released evaluation of LLaMA masks it, by sums over rows that are yet to come."""

from dataclasses import dataclass
from typing import ClassVar

from h2o_theory.policies.parts import Parts, heavy_part
from h2o_theory.policies.registry import register
from h2o_theory.policies.rules.oracle_static import OracleStatic

__all__ = ["H2OLmEvalLlama"]


@register
@dataclass(frozen=True)
class H2OLmEvalLlama(OracleStatic):
    r"""Keep the tokens with most attention over the whole sequence, future included, and a window.

    .. math:: V_t = \big( \mathrm{top}_{hb} \textstyle\sum_{t'} A[t', \cdot] \ \cup\
              \{t - rb, \dots, t\} \big) \cap \{0, \dots, t\}, \qquad k = hb + rb + 1

    Clairvoyant, although it was published among results of online policies. O(T^2).

    Source: FMInference/H2O, ``utils_lm_eval`` for LLaMA since April 2024. Departures: the mask
    leaves a place empty for each chosen token that has not arrived or is in the window; here
    those places hold the next best arrivals, so that S_t contains V_t and retains at least as
    much. hb is a share of k - 1 rather than of prompt and continuation.

    Parameters
    ----------
    recent : float
        rb as a share of k - 1; the heavy part is rounded down.
    """

    name: ClassVar[str] = "h2o_lm_eval_llama"
    source: ClassVar[str] = "FMInference/H2O utils_lm_eval, LLaMA"

    def parts(self, budget):
        """The share ``1 - recent`` of k - 1 is heavy; the query's own entry is recent."""
        n_heavy = heavy_part(self.recent, budget - 1) if budget > 1 else 0
        return Parts(0, n_heavy, budget - n_heavy)
