"""How unequally an amount is spread over entries: shares of the top, Gini, entropy, support."""

from collections.abc import Iterable
from math import ceil

import numpy as np
from numpy.typing import ArrayLike

from h2o_theory.annotations import FloatArray, IntArray
from h2o_theory.errors import BadArgument, NotEnoughData

__all__ = [
    "concentration_profile",
    "effective_support",
    "entropy",
    "gini",
    "support_for",
    "top_count",
    "top_share",
]


def top_count(share: float, entries: int) -> int:
    """How many entries are the top ``share`` of ``entries``: rounded up, at least one."""
    return max(1, ceil(round(share * entries, 9)))


def top_share(amounts: ArrayLike, share: float) -> FloatArray:
    r"""Share of the total held by the largest ``share`` of the entries, last axis.

    .. math:: \frac{\sum_{i \le m} x_{(i)}}{\sum_i x_i}, \qquad m = \lceil \text{share} \cdot n
              \rceil, \quad x_{(1)} \ge x_{(2)} \ge \dots

    Parameters
    ----------
    amounts : array [..., n]
        Non-negative, each row with a positive sum.
    share : float
        In (0, 1].

    Returns
    -------
    array [...]
        Equal amounts give m / n. O(n) a row.

    Examples
    --------
    >>> float(top_share([1.0, 1.0, 1.0, 5.0], 0.25))
    0.625
    """
    amounts = _usable(amounts)
    if not 0 < share <= 1:
        raise BadArgument("share must be above 0 and at most 1", got=share)
    n = amounts.shape[-1]
    m = top_count(share, n)
    largest = np.partition(amounts, n - m, axis=-1)[..., n - m :]
    return largest.sum(axis=-1) / amounts.sum(axis=-1)


def gini(amounts: ArrayLike) -> FloatArray:
    r"""Gini coefficient, last axis: 0 for equal amounts, (n - 1) / n if one entry has all.

    .. math:: \frac{2 \sum_i i\, x_{[i]}}{n \sum_i x_i} - \frac{n + 1}{n}, \qquad
              x_{[1]} \le x_{[2]} \le \dots

    Parameters
    ----------
    amounts : array [..., n]

    Returns
    -------
    array [...]
        O(n log n) a row.

    Examples
    --------
    >>> float(gini([1.0, 1.0, 1.0, 5.0]))
    0.375
    """
    return _gini(np.sort(_usable(amounts), axis=-1))


def _gini(ordered: FloatArray) -> FloatArray:
    n = ordered.shape[-1]
    weighted = ordered @ np.arange(1, n + 1, dtype=float)
    return 2 * weighted / (n * ordered.sum(axis=-1)) - (n + 1) / n


def entropy(amounts: ArrayLike) -> FloatArray:
    r"""Shannon entropy of the shares in nats, last axis: :math:`-\sum_i p_i \ln p_i`.

    Returns
    -------
    array [...]
        0 if one entry has all, ln n for equal amounts.
    """
    return _entropy(_usable(amounts))


def _entropy(amounts: FloatArray) -> FloatArray:
    p = amounts / amounts.sum(axis=-1, keepdims=True)
    return -(p * np.log(p, out=np.zeros_like(p), where=p > 0)).sum(axis=-1)


def effective_support(amounts: ArrayLike) -> FloatArray:
    """Exponential of the entropy: the number of equal entries that would be as spread out."""
    return np.exp(entropy(amounts))


def concentration_profile(amounts: ArrayLike, shares: Iterable[float]) -> dict[str, FloatArray]:
    """Every measure of concentration at once, from one check and one sort of the amounts.

    Parameters
    ----------
    amounts : array [..., n]
    shares : sequence of float
        For :func:`top_share`.

    Returns
    -------
    dict
        ``top S% share`` for each share, ``Gini``, ``entropy`` and ``effective support``, each an
        array [...]. O(n log n) a row.
    """
    ordered = np.sort(_usable(amounts), axis=-1)
    n, total = ordered.shape[-1], ordered.sum(axis=-1)
    found = {
        f"top {share:.0%} share": ordered[..., n - top_count(share, n) :].sum(axis=-1) / total
        for share in shares
    }
    spread = _entropy(ordered)
    return found | {
        "Gini": _gini(ordered), "entropy": spread, "effective support": np.exp(spread)
    }  # fmt: skip


def support_for(amounts: ArrayLike, mass: float) -> IntArray:
    """The least number of entries that together hold the share ``mass`` of the total, last axis.

    Parameters
    ----------
    amounts : array [..., n]
    mass : float
        In (0, 1].

    Returns
    -------
    int array [...]
    """
    amounts = _usable(amounts)
    if not 0 < mass <= 1:
        raise BadArgument("mass must be above 0 and at most 1", got=mass)
    largest_first = np.sort(amounts, axis=-1)[..., ::-1]
    held = np.cumsum(largest_first, axis=-1)
    # The rounding of the sums must not ask for one more entry.
    wanted = mass * held[..., -1:] * (1 - 1e-12)
    return 1 + (held < wanted).sum(axis=-1)


def _usable(amounts: ArrayLike) -> FloatArray:
    amounts = np.asarray(amounts, dtype=np.float64)
    if amounts.ndim == 0 or amounts.shape[-1] == 0:
        raise NotEnoughData("amounts must not be empty", got=f"shape {list(amounts.shape)}")
    if not np.isfinite(amounts).all() or (amounts < 0).any():
        raise BadArgument("amounts must be finite and not negative", where="amounts")
    if (amounts.sum(axis=-1) <= 0).any():
        raise NotEnoughData("amounts must have a positive sum", got=0)
    return amounts
