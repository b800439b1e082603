"""LESS: what is evicted is remembered in a small recurrent state."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from h2o_theory.errors import BadArgument
from h2o_theory.policies.checks import require_whole_number
from h2o_theory.transforms.base import FULL_BITS, Stored, Transform

__all__ = ["LESS"]


@dataclass(frozen=True)
class LESS(Transform):
    r"""Add the evicted keys to the output through a kernel of low rank.

    .. math:: o_t = \frac{\sum_{j \in S_t} e^{L_{t,j}} v_j + \phi(q_t) H_t}
                         {\sum_{j \in S_t} e^{L_{t,j}} + \phi(q_t) z_t}, \qquad
              H_t = \sum_{j\ \text{evicted before}\ t} \psi(k_j)^\top v_j, \quad
              z_t = \sum \psi(k_j)^\top

    The state H, z is of one size whatever was evicted. The kernel is yours: LESS trains it, and no
    trained one comes with this package.

    Source: LESS (arXiv 2402.09398). Departures: the kernel is given, not trained. O(T r) once.

    Parameters
    ----------
    kernel : callable
        ``kernel(queries [G, T, d], keys [T, d])`` gives non-negative features
        ``([G, T, r], [T, r])``, each from its own query or key alone; queries are scaled already.
    rank : int
        r, which counts for the bits.
    """

    name: ClassVar[str] = "less"
    source: ClassVar[str] = "arXiv 2402.09398"

    kernel: Callable | None = None
    rank: int = 8

    def __post_init__(self):
        require_whole_number(self, "rank", 1)
        if not callable(self.kernel):
            raise BadArgument(
                "LESS needs a kernel of yours",
                where="less:kernel",
                got=repr(self.kernel),
                expected="a function",
                hint="From Python: replay_transforms(trace, 'h2o', [LESS(kernel=phi)], '10%')",
            )

    def stored(self, queries, keys, values, prefill):
        """All of it as it is, and the features that stand for what is evicted."""
        found = self.kernel(queries, keys)
        features = tuple(np.asarray(part, dtype=np.float64) for part in found)
        expected = (*queries.shape[:2], self.rank), (len(keys), self.rank)
        shapes = tuple(part.shape for part in features)
        if shapes != expected or not all((part >= 0).all() for part in features):
            raise BadArgument(
                "the kernel gives unusable features",
                where="less:kernel",
                got=f"shapes {shapes}" if shapes != expected else "negative or NaN features",
                expected=f"non-negative features of shapes {expected}",
            )
        nothing_rounded = np.zeros(len(keys), dtype=np.int64)
        return Stored(keys, values, nothing_rounded, nothing_rounded, features)

    def cache_bits(self, entries, head_dim, value_dim):
        """16 bits for each number of entries and state."""
        return FULL_BITS * (entries * (head_dim + value_dim) + self.rank * (value_dim + 1))
