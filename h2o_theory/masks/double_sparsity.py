"""Double Sparsity: top-k keys by logits from a few channels."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from h2o_theory.masks.base import Mask, keep_largest
from h2o_theory.policies.checks import require_whole_number

__all__ = ["DoubleSparsity"]


@dataclass(frozen=True)
class DoubleSparsity(Mask):
    r"""See the keys whose logits look largest on the channels that matter most.

    .. math:: S_t = \{t\} \cup \operatorname{top}_{k-1} \Big\{
              \frac1G \sum_g \sum_{c \in C} q_{g,t,c} k_{j,c} : j < t \Big\}

    where C holds the ``channels`` channels of largest
    :math:`\sum_{t' < m} |q_{g,t',c}| \cdot \sum_{t' < m} |k_{t',c}|` over the group and the first
    m = ``calibration`` rows; rows before m use all channels. O(T |C| + T log T) per row.

    Source: Double Sparsity (arXiv 2408.07092). Departures: channels are calibrated on the first
    rows of the trace in place of other text, one set per kv_head; labels are not quantised.

    Parameters
    ----------
    channels : int
        Channels of the approximate logits, at most d.
    calibration : int
        Rows that choose the channels.
    """

    name: ClassVar[str] = "double_sparsity"
    needs: ClassVar[str] = "qk"
    source: ClassVar[str] = "arXiv 2408.07092"

    channels: int = 16
    calibration: int = 32

    def __post_init__(self):
        super().__post_init__()
        require_whole_number(self, "channels", 1)
        require_whole_number(self, "calibration", 1)

    def pattern(self, view):
        """The keys of largest approximate logits."""
        first = slice(0, self.calibration)
        weight = np.abs(view.queries[:, first]).sum(axis=(0, 1)) * np.abs(view.keys[first]).sum(0)
        chosen = np.argsort(-weight, kind="stable")[: self.channels]
        queries = view.own_queries.mean(axis=0)
        scores = queries[:, chosen] @ view.keys[:, chosen].T
        early = view.row[:, 0] < self.calibration
        scores[early] = queries[early] @ view.keys.T
        own = view.column == view.row
        return keep_largest(np.where(own, np.inf, scores), view.causal, view.budget)
