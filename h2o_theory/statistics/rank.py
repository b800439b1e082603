"""Rank correlation, plain and with other quantities held fixed, with intervals and permutations."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from h2o_theory.annotations import FloatArray, IntArray
from h2o_theory.dependencies import require
from h2o_theory.errors import NotEnoughData
from h2o_theory.statistics.resample import Interval, percentile_interval

__all__ = [
    "LEAST_PAIRS",
    "Permutation",
    "kendall",
    "partial_rank_correlation",
    "partial_spearman",
    "partial_permutation",
    "permutation_within",
    "spearman",
]

LEAST_PAIRS = 20
"""Fewest pairs for which a correlation is given."""


class Permutation(NamedTuple):
    """A statistic among those of permuted data.

    Attributes
    ----------
    value : float
        As observed.
    mean, low, high : float
        Mean and 2.5 and 97.5 percentiles over permutations: what chance, or what was held fixed,
        explains.
    p : float
        Share of permutations (the observed data counted as one) at least as far from their mean.
    """

    value: float
    mean: float
    low: float
    high: float
    p: float


def spearman(x: ArrayLike, y: ArrayLike, *, replicates: int = 1000, seed: int = 0) -> Interval:
    """Spearman's rank correlation with a bootstrap interval over pairs.

    Returns
    -------
    Interval

    Raises
    ------
    NotEnoughData
        For fewer than :data:`LEAST_PAIRS` pairs, or a constant x or y.
    """
    return partial_spearman(x, y, (), replicates=replicates, seed=seed)


def kendall(x: ArrayLike, y: ArrayLike, *, replicates: int = 300, seed: int = 0) -> Interval:
    """Kendall's tau-b with a bootstrap interval over pairs; errors as in :func:`spearman`.

    O(replicates x n log n).
    """
    x, y, _ = _usable(x, y, ())
    tau = require("scipy.stats").kendalltau
    drawn = [tau(x[i], y[i]).statistic for i in _resamples(len(x), replicates, seed)]
    return percentile_interval(tau(x, y).statistic, np.array(drawn)[np.isfinite(drawn)])


def partial_spearman(
    x: ArrayLike,
    y: ArrayLike,
    controls: ArrayLike,
    *,
    replicates: int = 1000,
    seed: int = 0,
    resamples: Iterable[IntArray] | None = None,
) -> Interval:
    r"""Spearman's correlation of x and y with the controls held fixed, bootstrap interval.

    Everything is replaced by its ranks; x and y are regressed on the controls (with a constant),
    and the residuals are correlated:

    .. math:: r_{xy \cdot Z} = \mathrm{corr}(R_x - Z\hat\beta_x,\; R_y - Z\hat\beta_y).

    Parameters
    ----------
    x, y : array [n]
    controls : sequence of array [n]
        Empty for the plain rank correlation.
    replicates : int
        Resamples of the pairs; ranks are taken anew in each.
    seed : int
    resamples : iterable of int array, optional
        Resampled indices to use instead, such as those of
        :func:`~h2o_theory.statistics.resample.block_draws` for pairs along a text.

    Returns
    -------
    Interval

    Raises
    ------
    NotEnoughData
        For fewer than :data:`LEAST_PAIRS` pairs, or if x or y is constant or is fixed by the
        controls.

    Notes
    -----
    Linear in ranks: a relation with the controls that is not monotone is not removed.
    """
    x, y, controls = _usable(x, y, controls)
    value = _partial(x, y, controls)
    drawn = []
    for i in _resamples(len(x), replicates, seed) if resamples is None else resamples:
        again = _partial(x[i], y[i], controls[:, i])
        if np.isfinite(again):
            drawn.append(again)
    return percentile_interval(_defined(value), drawn)


def partial_rank_correlation(x: ArrayLike, y: ArrayLike, controls: ArrayLike) -> float:
    """The value of :func:`partial_spearman` alone; the same errors."""
    return _defined(_partial(*_usable(x, y, controls)))


def partial_permutation(
    x: ArrayLike, y: ArrayLike, controls: ArrayLike, *, replicates: int = 1000, seed: int = 0
) -> Permutation:
    """Permutation test of the partial rank correlation (Freedman, Lane 1983).

    The residual ranks of y, given the controls, are permuted; under no relation beyond the
    controls the observed correlation is one of many equals.

    Returns
    -------
    Permutation
    """
    x, y, controls = _usable(x, y, controls)
    a, b = _residuals(x, controls), _residuals(y, controls)
    value = _defined(_correlation(a, b))
    rng = np.random.default_rng(seed)
    return _placed(value, [_correlation(a, rng.permutation(b)) for _ in range(replicates)])


def permutation_within(
    x: ArrayLike, y: ArrayLike, groups: ArrayLike, *, replicates: int = 1000, seed: int = 0
) -> Permutation:
    """Spearman's correlation against permutations of y within groups of equal members.

    Whatever the groups have in common is kept by every permutation, so the mean over
    permutations is the correlation that the groups alone explain. One single group gives the
    plain permutation test.

    Parameters
    ----------
    x, y : array [n]
    groups : int array [n]

    Returns
    -------
    Permutation
    """
    x, y, _ = _usable(x, y, ())
    x, y, groups = _residuals(x, ()), _residuals(y, ()), np.asarray(groups)
    members = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(replicates):
        shuffled = y.copy()
        for places in members:
            shuffled[places] = y[rng.permutation(places)]
        drawn.append(_correlation(x, shuffled))
    return _placed(_defined(_correlation(x, y)), drawn)


def _placed(value: float, drawn: Sequence[float]) -> Permutation:
    drawn = np.asarray(drawn)
    mean = drawn.mean()
    far = np.abs(drawn - mean) >= abs(value - mean) - 1e-12
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Permutation(
        float(value), float(mean), float(low), float(high), float((1 + far.sum()) / (1 + len(far)))
    )


def _resamples(n: int, replicates: int, seed: int) -> IntArray:
    rng = np.random.default_rng(seed)
    return rng.integers(n, size=(replicates, n))


def _partial(x: FloatArray, y: FloatArray, controls: FloatArray) -> float:
    return _correlation(_residuals(x, controls), _residuals(y, controls))


def _residuals(x: FloatArray, controls: ArrayLike) -> FloatArray:
    """Ranks of x less their least-squares fit by a constant and the ranks of the controls."""
    rank = require("scipy.stats").rankdata
    ranks = rank(x)
    centred = ranks - ranks.mean()
    if not len(controls):
        return centred
    fixed = rank(controls, axis=1)
    fixed = (fixed - fixed.mean(axis=1, keepdims=True)).T
    solution = np.linalg.lstsq(fixed, centred, rcond=None)[0]
    return centred - fixed @ solution


def _correlation(a: FloatArray, b: FloatArray) -> float:
    """Correlation of centred vectors; NaN where one is zero but for rounding."""
    n = len(a)
    scale = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / scale) if scale > 1e-9 * n**3 else np.nan


def _defined(value: float) -> float:
    if not np.isfinite(value):
        raise NotEnoughData(
            "a correlation needs values that differ",
            got="a quantity that is constant, or fixed by what is controlled for",
        )
    return value


def _usable(
    x: ArrayLike, y: ArrayLike, controls: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray]:
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    controls = np.asarray(controls, dtype=float).reshape(len(controls), len(x))
    if len(x) < LEAST_PAIRS:
        raise NotEnoughData(f"a correlation needs at least {LEAST_PAIRS} pairs", got=len(x))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        _defined(np.nan)
    return x, y, controls
