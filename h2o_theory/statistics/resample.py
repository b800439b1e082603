"""Intervals by resampling, for data along a text, whose neighbours are alike."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from h2o_theory.annotations import IntArray
from h2o_theory.errors import NotEnoughData

__all__ = [
    "BLOCKS",
    "LEAST",
    "Interval",
    "block_draws",
    "percentile_interval",
    "ratio_interval",
    "share_interval",
]

BLOCKS = 32
"""Number of blocks a text is cut into."""

LEAST = 2 * BLOCKS
"""Fewest positions for which an interval is given."""

LEVEL = 0.95


class Interval(NamedTuple):
    """An estimate and the ends of its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def block_draws(
    length: int, replicates: int, seed: int = 0, *, first: int = 0
) -> Iterator[IntArray]:
    """Indices of resampled texts, made of blocks of consecutive positions drawn with replacement.

    The positions ``first .. length`` are cut into :data:`BLOCKS` blocks of nearly equal length;
    each draw takes as many blocks at random. Whole blocks keep the likeness of neighbours that
    single positions would lose (Künsch 1989).

    Parameters
    ----------
    length : int
    replicates : int
    seed : int
    first : int
        Positions below it take no part.

    Yields
    ------
    int array
        About ``length - first`` indices.
    """
    if length - first < LEAST:
        raise NotEnoughData(f"an interval needs at least {LEAST} positions", got=length - first)
    blocks = np.array_split(np.arange(first, length), BLOCKS)
    rng = np.random.default_rng(seed)
    for _ in range(replicates):
        yield np.concatenate([blocks[i] for i in rng.integers(BLOCKS, size=BLOCKS)])


def percentile_interval(value: float, draws: ArrayLike) -> Interval:
    """The estimate with the 2.5 and 97.5 percentiles of its resampled values.

    The ends are widened to include the estimate, which a biased statistic can leave outside.

    Raises
    ------
    NotEnoughData
        If there is no resampled value: the statistic is undefined in every resample.
    """
    if not len(draws):
        raise NotEnoughData("not enough data for an interval: no resample has a value")
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(np.asarray(draws, dtype=float), [tail, 1 - tail])
    return Interval(float(value), float(min(low, value)), float(max(high, value)))


def ratio_interval(
    numerator: ArrayLike, denominator: ArrayLike, *, replicates: int = 1000, seed: int = 0
) -> Interval:
    r"""A ratio of sums along a text with a block-bootstrap interval.

    .. math:: \hat r = \frac{\sum_j a_j}{\sum_j b_j}

    Parameters
    ----------
    numerator, denominator : array [n]
        What each position (or row) contributes; the denominators have a positive sum.
    replicates : int
    seed : int

    Returns
    -------
    Interval

    Raises
    ------
    NotEnoughData
        For fewer than :data:`LEAST` positions, or denominators that sum to zero.

    Notes
    -----
    O(n + replicates x BLOCKS): a block contributes its two sums. Draws whose
    denominators are all zero are left out.

    Not for what depends on position, such as the share of the first tenth: resampled stretches
    would carry their positions along, and even a constant would get a wide interval.

    Coverage of the nominal 95 %, measured on the mean of Gaussian AR(1) series (1,000 each):

    ====  =====  =======  =======
    n     white  AR(0.5)  AR(0.9)
    ====  =====  =======  =======
    128   92 %   86 %     55 %
    511   93 %   92 %     81 %
    2047  93 %   93 %     91 %
    ====  =====  =======  =======

    Blocks of n / 32 positions are too short where neighbours are alike for longer than that.
    """
    numerator = np.asarray(numerator, dtype=np.float64)
    denominator = np.asarray(denominator, dtype=np.float64)
    if len(numerator) < LEAST:
        raise NotEnoughData(f"an interval needs at least {LEAST} positions", got=len(numerator))
    if denominator.sum() <= 0:
        raise NotEnoughData("the denominators must have a positive sum", got=denominator.sum())
    cuts = np.array_split(np.arange(len(numerator)), BLOCKS)
    above = np.array([numerator[cut].sum() for cut in cuts])
    below = np.array([denominator[cut].sum() for cut in cuts])
    chosen = np.random.default_rng(seed).integers(BLOCKS, size=(replicates, BLOCKS))
    sums = below[chosen].sum(axis=1)
    drawn = above[chosen].sum(axis=1)[sums > 0] / sums[sums > 0]
    return percentile_interval(above.sum() / below.sum(), drawn)


def share_interval(hits: int, trials: int, z: float = 1.959964) -> Interval:
    """A share with its 95 % interval (Wilson 1927), which stays within 0 and 1.

    Examples
    --------
    >>> print(share_interval(8, 16))
    0.5 [0.28, 0.72]
    """
    share = hits / trials
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = (
        z / (1 + z * z / trials) * np.sqrt(share * (1 - share) / trials + (z / (2 * trials)) ** 2)
    )
    return Interval(share, max(0.0, float(middle - half)), min(1.0, float(middle + half)))
