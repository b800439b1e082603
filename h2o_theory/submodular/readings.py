r"""What f can mean in the H2O paper: readings of ``F(Z, t, .)`` on recorded attention rows.

With a[s, j] the mean row over the query heads of a kv_head and h a concave shape,

========================  ==========================================================================
``row``                   h( sum over Y of a[t, j] ): the last row, full attention
``row_cached``            h( sum over Y of â_Z[t, j] ): the last row as a cache of Z and t has it
``accumulated``           h( sum over Y of sum_{s <= t} a[s, j] ): accumulated, full attention
``accumulated_cached``    h( sum over Y of (õ_{t-1}[j] + â_Z[t, j]) ): Algorithm 2, õ from the
                          rows that a schedule's own cache computed before
``row_sums``              sum_{s <= t} h( sum over Y of a[s, j] ): diminishing returns in each row
========================  ==========================================================================

Here â_Z[t, j] = a[t, j] / (sum over Z and t of a[t, i]) for j in Z or j = t, else 0, taken for each
query head and then averaged. The first four are concave of modular in Y, hence monotone and
submodular for every Z and t ("strong" and so "dynamic" submodularity, D.3 and D.4); two of them
depend on Z.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from h2o_theory.annotations import FloatArray
from h2o_theory.errors import BadArgument
from h2o_theory.optimum.fixed_point import require_rows
from h2o_theory.optimum.shapes import Shape, linear
from h2o_theory.submodular.arguments import require_shape
from h2o_theory.submodular.dynamic import Best, DynamicFunction
from h2o_theory.submodular.greedy import lazy_greedy
from h2o_theory.submodular.row_sums import RowSums
from h2o_theory.submodular.set_function import SetFunction
from h2o_theory.submodular.trajectory import visible_sets
from h2o_theory.submodular.weighted_reading import CachedReading, FullReading

__all__ = ["READINGS", "RowSumsReading", "make_reading"]

READINGS = ("row", "row_cached", "accumulated", "accumulated_cached", "row_sums")


def make_reading(
    name: str, rows: ArrayLike, *, shape: Shape | None = None, evicted_at: ArrayLike | None = None
) -> DynamicFunction:
    """A reading of f by name.

    Parameters
    ----------
    name : str
        One of :data:`READINGS`.
    rows : array_like [T, T] or [G, T, T]
        Attention rows, of one kv_head's mean or of each of its query heads.
    shape : Shape, optional
        h; linear by default.
    evicted_at : array_like [T], optional
        The schedule whose cache computed the earlier rows, for ``accumulated_cached``: key j is
        visible to row s iff ``j <= s <= evicted_at[j]``.

    Returns
    -------
    DynamicFunction

    Raises
    ------
    BadArgument, InvalidAttention
        Unknown name, unusable rows or shape, or a schedule missing.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.1, 0.7, 0.2, 0], [0.6, 0.1, 0.1, 0.2]])
    >>> best = make_reading("row", rows).best(3, 2)
    >>> best.members, round(best.upper, 6)
    (array([0, 3]), 0.8)
    """
    if name not in READINGS:
        raise BadArgument("name must be a reading of f: " + ", ".join(READINGS), got=name)
    shape = require_shape(linear() if shape is None else shape)
    rows = _require_group(rows)
    title = name if shape.name == "m" else f"{shape.name} of {name}"
    if name == "row_sums":
        return RowSumsReading(title, rows.mean(axis=0), shape)
    if name in ("row", "accumulated"):
        mean_rows = rows.mean(axis=0)
        weights = mean_rows if name == "row" else np.cumsum(mean_rows, axis=0)
        return FullReading(title, np.tril(weights), shape)
    before = np.zeros(rows.shape[1:])
    if name == "accumulated_cached":
        if evicted_at is None:
            raise BadArgument(
                f"evicted_at must be a step for each token: {name} needs a schedule",
                got=None,
            )
        before[1:] = np.cumsum(_cached_rows(rows, evicted_at), axis=0)[:-1]
    return CachedReading(title, rows, before, shape)


class RowSumsReading(DynamicFunction):
    """``F(Z, t, Y) = sum_{s <= t} h(sum over Y of rows[s, j])``, whatever Z."""

    def __init__(self, name: str, mean_rows: FloatArray, shape: Shape) -> None:
        super().__init__(name, len(mean_rows))
        self.shape, self._rows = shape, mean_rows

    def at(self, cache: Iterable[int], step: int) -> SetFunction:
        return RowSums(self.name, self._rows[: step + 1, : step + 1], self.shape)

    def best(self, step: int, size: int) -> Best:
        """Greedy from below, its online bound from above: NP-hard to know exactly."""
        found = lazy_greedy(self.at((), step), min(size, step + 1))
        members = np.sort(np.array(found.members, dtype=int))
        return Best(found.value, found.upper, members[members < step], members)


def _cached_rows(rows: FloatArray, evicted_at: ArrayLike) -> FloatArray:
    """Rows [T, T] as the schedule's own cache computes them: renormalised, mean of the group."""
    visible = visible_sets(evicted_at, rows.shape[1])
    shares = np.where(visible, rows, 0.0)
    mass = shares.sum(axis=2, keepdims=True)
    return np.divide(shares, mass, out=np.zeros_like(shares), where=mass > 0).mean(axis=0)


def _require_group(rows: FloatArray) -> None:
    """Rows as float64 [G, T, T], or a named refusal."""
    rows = np.asarray(rows)
    if rows.ndim not in (2, 3) or not rows.size:
        raise BadArgument(
            "rows must have the shape [T, T] or [G, T, T]", got=f"shape {list(rows.shape)}"
        )
    group = rows[None] if rows.ndim == 2 else rows
    return np.stack([require_rows(head, "rows").astype(np.float64, copy=False) for head in group])
