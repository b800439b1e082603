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

import numpy as np

from h2o_theory.errors import BadArgument
from h2o_theory.optimum.fixed_point import require_rows
from h2o_theory.optimum.shapes import linear
from h2o_theory.submodular.dynamic import Best, DynamicFunction
from h2o_theory.submodular.greedy import lazy_greedy
from h2o_theory.submodular.row_sums import RowSums, require_shape
from h2o_theory.submodular.trajectory import visible_sets

__all__ = [
    "READINGS",
    "CachedReading",
    "FullReading",
    "RowSumsReading",
    "largest_excess",
    "make_reading",
]

READINGS = ("row", "row_cached", "accumulated", "accumulated_cached", "row_sums")

# Tangents tried to close the bounds on the best value of a cached reading.
_TANGENTS = 12


def make_reading(name, rows, *, shape=None, evicted_at=None):
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
    """
    if name not in READINGS:
        raise BadArgument(
            "no such reading of f", where="name", got=name, expected=", ".join(READINGS)
        )
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
                "this reading needs the schedule of a cache",
                where="evicted_at",
                got="None",
                expected="a step for each token",
            )
        before[1:] = np.cumsum(_cached_rows(rows, evicted_at), axis=0)[:-1]
    return CachedReading(title, rows, before, shape)


class FullReading(DynamicFunction):
    """``F(Z, t, Y) = h(sum over Y of weights[t, j])``, whatever Z."""

    def __init__(self, name, weights, shape):
        super().__init__(name, len(weights))
        self.shape, self._weights = shape, weights

    def weights(self, cache, step):
        """What F adds up, float64 [step + 1]."""
        return self._weights[step, : step + 1]

    def at(self, cache, step):
        weights = self.weights(cache, step)[None]
        return RowSums(self.name, weights, self.shape, modular=self.shape.name == "m")

    def value(self, cache, step, members):
        total = self.weights(cache, step)[members].sum()
        return float(self.shape.value(np.array([total]))[0])

    def best(self, step, size):
        """The k largest weights: exact, since h does not change which sum is larger."""
        weights = self.weights((), step)
        members = _largest(weights, size)
        value = self.value((), step, members)
        return Best(value, value, members[members < step], members)


class CachedReading(FullReading):
    """``F(Z, t, Y) = h(sum over Y of (before[t, j] + â_Z[t, j]))``."""

    def __init__(self, name, rows, before, shape):
        super().__init__(name, before, shape)
        self._rows = rows

    def weights(self, cache, step):
        seen = np.zeros(step + 1, dtype=bool)
        seen[np.asarray(cache, dtype=int)] = True
        seen[step] = True
        shares = np.where(seen, self._rows[:, step, : step + 1], 0.0)
        mass = shares.sum(axis=1, keepdims=True)
        shares = np.divide(shares, mass, out=np.zeros_like(shares), where=mass > 0)
        return self._weights[step, : step + 1] + shares.mean(axis=0)

    def best(self, step, size):
        r"""Bounds on the best value, which meet at most steps of real rows and are close at others.

        If Y has the newcomer, X = Y without it makes its share 1: the k-1 largest of what came
        before. If not, X = Y is best, and the share is :math:`g(m) = m / (m + a_{tt})`, m the mass
        of Y: concave, so each tangent turns the question into the k largest of other weights, and
        bounds it from above.
        """
        before = self._weights[step, : step + 1]
        older = _largest(before[:step], size - 1)
        choices = [np.append(older, step)]
        own = self._rows[:, step, step]
        attention = self._rows[:, step, :step]
        members, upper = _largest(before[:step], size), np.inf
        for _ in range(_TANGENTS):
            choices.append(members)
            mass = attention[:, members].sum(axis=1)
            slope = np.divide(own, (mass + own) ** 2, out=np.zeros_like(own), where=mass + own > 0)
            share = np.divide(mass, mass + own, out=np.ones_like(own), where=own > 0)
            tilted = before[:step] + slope @ attention / len(own)
            following = _largest(tilted, size)
            bound = (share - slope * mass).mean() + tilted[following].sum()
            upper = min(upper, bound)
            if set(following.tolist()) == set(members.tolist()):
                break
            members = following
        with_newcomer = before[older].sum() + before[step] + 1.0
        upper = float(self.shape.value(np.array([max(upper, with_newcomer)]))[0])
        values = [self.value(choice[choice < step], step, choice) for choice in choices]
        at = int(np.argmax(values))
        members = choices[at]
        # Rounding must not part two bounds that are the same number.
        upper = values[at] if upper <= values[at] * (1 + 1e-12) else upper
        return Best(values[at], upper, members[members < step], members)


class RowSumsReading(DynamicFunction):
    """``F(Z, t, Y) = sum_{s <= t} h(sum over Y of rows[s, j])``, whatever Z."""

    def __init__(self, name, mean_rows, shape):
        super().__init__(name, len(mean_rows))
        self.shape, self._rows = shape, mean_rows

    def at(self, cache, step):
        return RowSums(self.name, self._rows[: step + 1, : step + 1], self.shape)

    def best(self, step, size):
        """Greedy from below, its online bound from above: NP-hard to know exactly."""
        found = lazy_greedy(self.at((), step), min(size, step + 1))
        members = np.sort(np.array(found.members, dtype=int))
        return Best(found.value, found.upper, members[members < step], members)


def largest_excess(approximate, exact, cache, step, size):
    """An eps0 with ``f~(X) <= f(X) + eps0`` for all X of at most k tokens, at one cache and step.

    Parameters
    ----------
    approximate, exact : FullReading
        f~ and f, of the same shape.
    cache : collection of int
    step, size : int

    Returns
    -------
    float
        The smallest for linear h: the k largest of ``w~ - w`` above 0. For another h it is h of
        that sum less h(0), which suffices: ``h(a) - h(b) <= h(a - b) - h(0)`` for concave h.

    Raises
    ------
    BadArgument
        The two are no weighted readings of one shape.
    """
    weighted = isinstance(approximate, FullReading) and isinstance(exact, FullReading)
    if not weighted or approximate.shape.name != exact.shape.name:
        raise BadArgument(
            "the two readings cannot be compared for all sets",
            where="approximate",
            got=f"{approximate!r} for {exact!r}",
            expected="two of row, row_cached, accumulated and accumulated_cached, of one shape",
        )
    over = approximate.weights(cache, step) - exact.weights(cache, step)
    over = np.maximum(over, 0.0)
    total = np.array([over[_largest(over, size)].sum(), 0.0])
    return float(-np.diff(exact.shape.value(total))[0])


def _largest(weights, size):
    """Indices of the k largest weights, ascending; the lowest index among equals."""
    size = max(size, 0)
    if size >= weights.size:
        return np.arange(weights.size)
    return np.sort(np.argsort(-weights, kind="stable")[:size])


def _cached_rows(rows, evicted_at):
    """Rows [T, T] as the schedule's own cache computes them: renormalised, mean of the group."""
    visible = visible_sets(evicted_at, rows.shape[1])
    shares = np.where(visible, rows, 0.0)
    mass = shares.sum(axis=2, keepdims=True)
    return np.divide(shares, mass, out=np.zeros_like(shares), where=mass > 0).mean(axis=0)


def _require_group(rows):
    """Rows as float64 [G, T, T], or a named refusal."""
    rows = np.asarray(rows)
    if rows.ndim not in (2, 3) or not rows.size:
        raise BadArgument(
            "not attention rows",
            where="rows",
            got=f"shape {list(rows.shape)}",
            expected="[T, T] or [G, T, T]",
        )
    group = rows[None] if rows.ndim == 2 else rows
    return np.stack([require_rows(head, "rows").astype(np.float64, copy=False) for head in group])
