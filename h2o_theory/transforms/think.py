"""ThinK: the key channels that the queries use least are not stored."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from h2o_theory.policies.checks import require_share, require_whole_number
from h2o_theory.policies.parts import part_of
from h2o_theory.transforms.base import FULL_BITS, Stored, Transform

__all__ = ["ThinK"]


@dataclass(frozen=True)
class ThinK(Transform):
    r"""Drop the key channels that contribute least to the logits of the observed queries.

    .. math:: s_c = \Big( \sum_{g,\ t \in W} q_{g,t,c}^2 \Big) \Big( \sum_{j < p} k_{j,c}^2 \Big)

    with W the ``window`` rows before p = max(prefill, window). From row p on the channels of least
    :math:`s_c`, a share ``drop`` of them, are zero in all keys but the ``window`` most recent;
    values are untouched.

    Source: ThinK (arXiv 2407.21018) and its code: window 32, drop 0.4. Departures: one choice of
    channels for the group of a kv_head, made once. O(T d) once.

    Parameters
    ----------
    drop : float
        Share of the channels dropped, rounded down.
    window : int
        Rows that are observed, and keys that stay whole.
    """

    name: ClassVar[str] = "think"
    source: ClassVar[str] = "arXiv 2407.21018"

    drop: float = 0.4
    window: int = 32

    def __post_init__(self):
        require_share(self, "drop")
        require_whole_number(self, "window", 1)

    def stored(self, queries, keys, values, prefill):
        """Keys without the dropped channels."""
        begin = max(prefill, self.window)
        seen = slice(begin - self.window, begin)
        score = (queries[:, seen] ** 2).sum(axis=(0, 1)) * (keys[:begin] ** 2).sum(axis=0)
        dropped = np.argsort(score, kind="stable")[: part_of(self.drop, keys.shape[1])]
        pruned = keys.copy()
        pruned[:, dropped] = 0.0
        row = np.arange(len(keys))
        whole = np.where(row < begin, 0, np.maximum(row + 1 - self.window, 0))
        return Stored(pruned, values, whole, np.zeros(len(keys), dtype=np.int64))

    def cache_bits(self, entries, head_dim, value_dim):
        """The window whole, the rest without the dropped channels, and a bit per channel."""
        whole = min(entries, self.window)
        kept = head_dim - part_of(self.drop, head_dim)
        numbers = whole * (head_dim + value_dim) + (entries - whole) * (kept + value_dim)
        return FULL_BITS * numbers + head_dim
