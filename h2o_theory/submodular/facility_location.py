"""Facility location: every item is served by the chosen element most similar to it."""

from collections.abc import Iterable

import numpy as np
from numba import njit
from numpy.typing import ArrayLike

from h2o_theory.annotations import FloatArray
from h2o_theory.errors import BadArgument
from h2o_theory.submodular.arguments import require_weights
from h2o_theory.submodular.set_function import Properties, Selection, SetFunction

__all__ = ["FacilityLocation", "facility_location", "key_similarity"]


class FacilityLocation(SetFunction):
    """``f(S) = sum_i max_{j in S} s[i, j]``, 0 for the empty set.

    Normalised, monotone, submodular for s >= 0. O(m) a gain, m items, compiled.
    """

    def __init__(self, similarity: FloatArray) -> None:
        super().__init__("facility location", similarity.shape[1], Properties(True, True, True))
        self.columns = np.ascontiguousarray(similarity.T)

    def value(self, members: Iterable[int]) -> float:
        if not len(members):
            return 0.0
        return float(self.columns[list(members)].max(axis=0).sum())

    def select(self, members: Iterable[int] = ()) -> Selection:
        return _ServedSelection(self, members)


class _ServedSelection(Selection):
    """Keeps how well each item is served."""

    def __init__(self, function: FacilityLocation, members: Iterable[int] = ()) -> None:
        self._best = np.zeros(function.columns.shape[1])
        super().__init__(function, members)

    def gain(self, j: int) -> float:
        return _gain(self.function.columns, self._best, j)

    def gains(self, candidates: ArrayLike) -> FloatArray:
        return _gains(self.function.columns, self._best, np.asarray(candidates, dtype=np.int64))

    def losses(self) -> FloatArray:
        return -self._replaced(np.zeros_like(self._best))

    def _replaced(self, newcomer: FloatArray) -> FloatArray:
        """Change of f when each member in turn makes way for the given similarities."""
        chosen = self.function.columns[self.members]
        out = np.empty(len(self.members))
        for place in range(len(self.members)):
            others = np.delete(chosen, place, axis=0).max(axis=0, initial=0.0)
            out[place] = np.maximum(others, newcomer).sum() - self.value
        return out

    def add(self, j: int) -> None:
        self.members.append(int(j))
        np.maximum(self._best, self.function.columns[j], out=self._best)
        self.value = float(self._best.sum())

    def drop(self, j: int) -> None:
        self.members.remove(j)
        self._best = self.function.columns[self.members].max(axis=0, initial=0.0)
        self.value = float(self._best.sum())


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "nsz"})
def _gain(columns, best, j):
    """What element j adds to the service of all items; reassociation lets it use vector units."""
    total = 0.0
    for i in range(best.size):
        total += max(columns[j, i] - best[i], 0.0)
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _gains(columns, best, candidates):
    """:func:`_gain` of several elements."""
    out = np.empty(candidates.size)
    for i in range(candidates.size):
        out[i] = _gain(columns, best, candidates[i])
    return out


def facility_location(similarity: ArrayLike) -> FacilityLocation:
    """``f(S) = sum_i max_{j in S} similarity[i, j]``: how well a set stands for all items.

    Parameters
    ----------
    similarity : array_like [m, n]
        Of item i to element j; finite, at least 0. :func:`key_similarity` makes one of keys.

    Returns
    -------
    FacilityLocation

    Raises
    ------
    BadArgument
        The similarities are unusable.

    Notes
    -----
    8 m n bytes. Weights of items are rows scaled by them.
    """
    return FacilityLocation(require_weights(similarity, 2, "similarity"))


def key_similarity(keys: ArrayLike) -> FloatArray:
    """Similarity of every two keys, ``(1 + cos) / 2``: 1 for the same direction, 0 for opposite.

    Parameters
    ----------
    keys : array_like [T, d]
        Keys of one kv_head; finite. A key of zeros has similarity 1/2 to all others.

    Returns
    -------
    numpy.ndarray [T, T]
        Symmetric, in 0 .. 1, ones on the diagonal. 8 T^2 bytes.

    Raises
    ------
    BadArgument
        ``keys`` is no finite matrix.
    """
    keys = np.asarray(keys, dtype=np.float64)
    if keys.ndim != 2 or keys.size == 0 or not np.isfinite(keys).all():
        raise BadArgument("keys must be finite numbers [T, d]", got=f"shape {list(keys.shape)}")
    norms = np.linalg.norm(keys, axis=1, keepdims=True)
    unit = np.divide(keys, norms, out=np.zeros_like(keys), where=norms > 0)
    similarity = np.clip((1.0 + unit @ unit.T) / 2.0, 0.0, 1.0)
    np.fill_diagonal(similarity, 1.0)
    return similarity
