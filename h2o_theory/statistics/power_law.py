"""Power law of a tail: exponent by maximum likelihood, where it begins, and whether it fits."""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import ArrayLike

from h2o_theory.annotations import FloatArray
from h2o_theory.errors import BadArgument, NotEnoughData
from h2o_theory.statistics.resample import Interval, percentile_interval, share_interval

__all__ = ["LEAST_TAIL", "LEAST_VALUES", "PowerLaw", "fit_power_law", "goodness_of_fit"]

LEAST_VALUES = 50
"""Fewest distinct positive values for a fit (below it estimates are unreliable: Clauset)."""

LEAST_TAIL = 10
"""Fewest values a tail may consist of."""


@dataclass(frozen=True)
class PowerLaw:
    r"""The density :math:`\frac{\alpha - 1}{x_{min}} (x / x_{min})^{-\alpha}` for x >= x_min.

    Attributes
    ----------
    exponent : float
        alpha > 1.
    x_min : float
        Where the tail begins; one of the values.
    tail : int
        Values at or above ``x_min``.
    values : int
        All positive values.
    distance : float
        Kolmogorov-Smirnov distance between the tail and the law.
    exponent_interval : Interval
        From resampled values, ``x_min`` chosen anew each time.
    """

    exponent: float
    x_min: float
    tail: int
    values: int
    distance: float
    exponent_interval: Interval


def fit_power_law(values: ArrayLike, *, replicates: int = 200, seed: int = 0) -> PowerLaw:
    r"""Fit a continuous power law to the upper tail of positive values.

    For each value as x_min the exponent of the n values at or above it is

    .. math:: \hat\alpha = 1 + n \Big/ \sum_{x_i \ge x_{min}} \ln \frac{x_i}{x_{min}},

    and the x_min kept is the one with the least Kolmogorov-Smirnov distance
    :math:`D = \sup_x |\hat F(x) - F(x)|`, both sides of each step of :math:`\hat F` counted.

    Parameters
    ----------
    values : array [n]
        Zeros are left out: they have no place on a logarithmic axis.
    replicates : int
        Resamples for the interval of the exponent.
    seed : int

    Returns
    -------
    PowerLaw

    Raises
    ------
    NotEnoughData
        For fewer than :data:`LEAST_VALUES` distinct positive values.
    BadArgument
        For values that are negative or not finite.

    Notes
    -----
    O(n^2) at worst; a candidate is dropped as soon as its distance exceeds the best so far.
    Written here rather than taken from the package ``powerlaw`` (2.0), which has no goodness of
    fit by bootstrap, bounds exponents by 3 unless told otherwise, and takes hundreds of times
    longer for a fit, of which the bootstraps need hundreds. The tests compare with it.
    Source: Clauset, Shalizi, Newman 2009.
    """
    ordered = _positive(values)
    start, exponent, distance = _best_tail(ordered, LEAST_TAIL)
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(replicates):
        sample = np.sort(rng.choice(ordered, len(ordered)))
        found = _best_tail(sample, LEAST_TAIL)
        if found[0] >= 0:
            drawn.append(found[1])
    return PowerLaw(
        exponent=float(exponent),
        x_min=float(ordered[start]),
        tail=len(ordered) - int(start),
        values=len(ordered),
        distance=float(distance),
        exponent_interval=percentile_interval(exponent, drawn or [exponent]),
    )


def goodness_of_fit(
    values: ArrayLike, law: PowerLaw, *, replicates: int = 500, seed: int = 0
) -> Interval:
    """How often values that do follow the law fit it worse than these: the p-value of the fit.

    Each replicate draws as many values as there are: from the law with the probability of the
    tail, else from the values below ``x_min``; it is then fitted anew, x_min included. A p-value
    of 0.1 or less rules the power law out; a large one does not prove it.

    Parameters
    ----------
    values : array [n]
    law : PowerLaw
        Of the same values.
    replicates : int
    seed : int

    Returns
    -------
    Interval
        The p-value with its 95 % Wilson interval, since it is a share of ``replicates``.

    Notes
    -----
    Source: Clauset, Shalizi, Newman 2009, section 4.1.
    """
    ordered = _positive(values)
    body = ordered[: len(ordered) - law.tail]
    rng = np.random.default_rng(seed)
    worse = 0
    for _ in range(replicates):
        in_tail = rng.binomial(len(ordered), law.tail / len(ordered))
        tail = law.x_min * rng.random(in_tail) ** (-1 / (law.exponent - 1))
        below = rng.choice(body, len(ordered) - in_tail) if len(body) else body
        worse += _best_tail(np.sort(np.concatenate([below, tail])), LEAST_TAIL)[2] >= law.distance
    return share_interval(worse, replicates)


def _positive(values: ArrayLike) -> FloatArray:
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all() or (values < 0).any():
        raise BadArgument("values must be one row of finite numbers, none negative")
    ordered = np.sort(values[values > 0])
    distinct = len(np.unique(ordered))
    if distinct < LEAST_VALUES:
        raise NotEnoughData(
            f"a power-law fit needs at least {LEAST_VALUES} distinct positive values", got=distinct
        )
    return ordered


@njit(cache=True, nogil=True)
def _best_tail(ordered, least):
    """Index of the best x_min in ascending values, its exponent and distance; -1 if none.

    Every 32nd candidate is tried first, and every 16th value of a candidate: a good distance
    found early lets most candidates be dropped after a few values. The least index wins ties.
    """
    n = len(ordered)
    logs = np.log(ordered)
    above = np.empty(n + 1)
    above[n] = 0.0
    for i in range(n - 1, -1, -1):
        above[i] = above[i + 1] + logs[i]
    best, exponent, closest = -1, np.inf, np.inf
    for offset in range(32):
        for i in range(offset, n - least + 1, 32):
            if i and ordered[i] == ordered[i - 1]:
                continue
            excess = above[i] - (n - i) * logs[i]
            if excess <= 1e-12 * (n - i):
                continue
            slope = (n - i) / excess
            if _distance(logs, i, slope, 16, closest) > closest:
                continue
            distance = _distance(logs, i, slope, 1, closest)
            if distance < closest or (distance == closest and i < best):
                best, exponent, closest = i, 1.0 + slope, distance
    return best, exponent, closest


@njit(cache=True, nogil=True)
def _distance(logs, i, slope, stride, enough):
    """Kolmogorov-Smirnov distance of the tail from ``i``, or a value above ``enough``."""
    n = len(logs)
    distance = 0.0
    for j in range(i, n, stride):
        below = 1.0 - np.exp(-slope * (logs[j] - logs[i]))
        distance = max(distance, (j - i + 1) / (n - i) - below, below - (j - i) / (n - i))
        if distance > enough:
            break
    return distance
