"""Readings of f that add up weights, whose best value of a step is known or almost known."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from h2o_theory.annotations import FloatArray, IntArray
from h2o_theory.errors import BadArgument
from h2o_theory.optimum.shapes import Shape
from h2o_theory.submodular.dynamic import Best, DynamicFunction
from h2o_theory.submodular.row_sums import RowSums
from h2o_theory.submodular.set_function import SetFunction

__all__ = ["CachedReading", "FullReading", "largest_excess"]

# Tangents tried to close the bounds on the best value of a cached reading.
_TANGENTS = 12


class FullReading(DynamicFunction):
    """``F(Z, t, Y) = h(sum over Y of weights[t, j])``, whatever Z."""

    def __init__(self, name: str, weights: FloatArray, shape: Shape) -> None:
        super().__init__(name, len(weights))
        self.shape, self._weights = shape, weights

    def weights(self, cache: Iterable[int], step: int) -> FloatArray:
        """What F adds up, float64 [step + 1]."""
        return self._weights[step, : step + 1]

    def at(self, cache: Iterable[int], step: int) -> SetFunction:
        weights = self.weights(cache, step)[None]
        return RowSums(self.name, weights, self.shape, modular=self.shape.name == "m")

    def value(self, cache: Iterable[int], step: int, members: Any) -> float:
        total = self.weights(cache, step)[members].sum()
        return float(self.shape.value(np.array([total]))[0])

    def best(self, step: int, size: int) -> Best:
        """The k largest weights: exact, since h does not change which sum is larger."""
        weights = self.weights((), step)
        members = _largest(weights, size)
        value = self.value((), step, members)
        return Best(value, value, members[members < step], members)


class CachedReading(FullReading):
    """``F(Z, t, Y) = h(sum over Y of (before[t, j] + â_Z[t, j]))``."""

    def __init__(self, name: str, rows: FloatArray, before: FloatArray, shape: Shape) -> None:
        super().__init__(name, before, shape)
        self._rows = rows

    def weights(self, cache: Iterable[int], step: int) -> FloatArray:
        seen = np.zeros(step + 1, dtype=bool)
        seen[np.asarray(cache, dtype=int)] = True
        seen[step] = True
        shares = np.where(seen, self._rows[:, step, : step + 1], 0.0)
        mass = shares.sum(axis=1, keepdims=True)
        shares = np.divide(shares, mass, out=np.zeros_like(shares), where=mass > 0)
        return self._weights[step, : step + 1] + shares.mean(axis=0)

    def best(self, step: int, size: int) -> Best:
        r"""Bounds on the best value, which meet at most steps of real rows and are close at others.

        If Y has the newcomer, X = Y without it makes its share 1: the k-1 largest of what came
        before. If not, X = Y is best, and the share is :math:`g(m) = m / (m + a_{tt})`, m the mass
        of Y: concave, so each tangent turns the question into the k largest of other weights, and
        bounds it from above. A tangent at a small m is steep, and its bound may exceed what any
        shares can add up to: 1, over the query heads whose row has any mass at all. So the bound
        is never above the k largest of what came before, and that.
        """
        before = self._weights[step, : step + 1]
        older = _largest(before[:step], size - 1)
        choices = [np.append(older, step)]
        own = self._rows[:, step, step]
        attention = self._rows[:, step, :step]
        members = _largest(before[:step], size)
        shares = float((attention.sum(axis=1) + own > 0).mean())
        upper = before[members].sum() + shares
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
        with_newcomer = before[older].sum() + before[step] + shares
        upper = float(self.shape.value(np.array([max(upper, with_newcomer)]))[0])
        values = [self.value(choice[choice < step], step, choice) for choice in choices]
        at = int(np.argmax(values))
        members, lower = choices[at], values[at]
        # Rounding must not part two bounds that are the same number.
        lower = upper if upper <= lower * (1 + 1e-12) else lower
        return Best(lower, upper, members[members < step], members)


def largest_excess(
    approximate: DynamicFunction, exact: DynamicFunction, cache: Iterable[int], step: int, size: int
) -> float:
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
            "approximate and exact must be two of row, row_cached, accumulated and "
            "accumulated_cached, of one shape, to be compared for all sets",
            got=f"{approximate!r} for {exact!r}",
        )
    over = approximate.weights(cache, step) - exact.weights(cache, step)
    over = np.maximum(over, 0.0)
    total = np.array([over[_largest(over, size)].sum(), 0.0])
    return float(-np.diff(exact.shape.value(total))[0])


def _largest(weights: FloatArray, size: int) -> IntArray:
    """Indices of the k largest weights, ascending; the lowest index among equals."""
    size = max(size, 0)
    if size >= weights.size:
        return np.arange(weights.size)
    return np.sort(np.argsort(-weights, kind="stable")[:size])
