"""How long things last when some were still lasting at the end: the Kaplan-Meier curve."""

import numpy as np
from numpy.typing import ArrayLike

from h2o_theory.annotations import FloatArray
from h2o_theory.errors import NotEnoughData

__all__ = ["median_survival", "survival_curve"]


def survival_curve(ended: ArrayLike, censored: ArrayLike) -> FloatArray:
    r"""Kaplan-Meier estimate of the probability of lasting at least d steps.

    .. math:: S(d) = \prod_{e < d} \Bigl(1 - \frac{\text{ended}_e}{\text{at risk}_e}\Bigr),
              \qquad \text{at risk}_e = \sum_{f \ge e} (\text{ended}_f + \text{censored}_f)

    Parameters
    ----------
    ended, censored : int array [D]
        How many lasted exactly d steps and then ended, or were cut off by the end of the data.

    Returns
    -------
    array [D + 1]
        S(0) = 1 and non-increasing. O(D).

    Examples
    --------
    >>> survival_curve([0, 1, 1], [0, 0, 2])
    array([1.  , 1.  , 0.75, 0.5 ])
    """
    ended, censored = np.asarray(ended, dtype=float), np.asarray(censored, dtype=float)
    if (ended + censored).sum() <= 0:
        raise NotEnoughData("no stay was observed: ended and censored count none")
    at_risk = np.cumsum((ended + censored)[::-1])[::-1]
    kept = 1 - np.divide(ended, at_risk, out=np.zeros_like(at_risk), where=at_risk > 0)
    return np.concatenate([[1.0], np.cumprod(kept)])


def median_survival(curve: FloatArray) -> int | None:
    """Least d with S(d) <= 1/2, or None if more than half outlast the data.

    Examples
    --------
    >>> median_survival(survival_curve([0, 1, 1], [0, 0, 2]))
    3
    """
    below = np.flatnonzero(curve <= 0.5)
    return int(below[0]) if below.size else None
