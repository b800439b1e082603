"""Concave functions of the retained mass of a row, and the lines that bound them from above."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from h2o_theory.annotations import FloatArray
from h2o_theory.errors import BadArgument

__all__ = ["Shape", "capped", "linear", "log_saturation", "square_root"]

# At smaller masses the slope of a square root is that at this one: it has to be finite.
_SMALL = 1e-6


@dataclass(frozen=True)
class Shape:
    """A concave, non-decreasing h with h(0) >= 0, for the objective ``sum_t h(m_t)``.

    All three take and return float64 arrays, entry by entry.

    Attributes
    ----------
    name : str
    value : callable
        h(m) for m >= 0.
    slope : callable
        A slope of h at m, finite and not negative.
    peak : callable
        A mass at which ``h(m) - s * m`` is largest, for a slope s >= 0; may be infinite.
    """

    name: str
    value: Callable
    slope: Callable
    peak: Callable

    def intercept(self, slopes: FloatArray, row_mass: FloatArray) -> FloatArray:
        """Smallest c for which ``h(m) <= c + s * m`` on ``0 <= m <= row_mass``, for each row."""
        at = np.minimum(self.peak(slopes), row_mass)
        return self.value(at) - slopes * at


def linear() -> Shape:
    """``h(m) = m``: retained mass itself."""
    return Shape(
        "m",
        lambda m: m,
        np.ones_like,
        lambda s: np.where(s < 1.0, np.inf, 0.0),
    )


def square_root() -> Shape:
    """``h(m) = sqrt(m)``."""
    return Shape(
        "sqrt",
        np.sqrt,
        lambda m: 0.5 / np.sqrt(np.maximum(m, _SMALL)),
        lambda s: 0.25 / np.maximum(s, 1e-150) ** 2,
    )


def log_saturation(scale: float = 20.0) -> Shape:
    """``h(m) = log(1 + scale * m)``.

    Raises
    ------
    BadArgument
        ``scale`` is not positive.
    """
    _require_positive(scale, "scale")
    return Shape(
        f"log1p({scale:g} m)",
        lambda m: np.log1p(scale * m),
        lambda m: scale / (1.0 + scale * m),
        lambda s: np.maximum(1.0 / np.maximum(s, 1e-150) - 1.0 / scale, 0.0),
    )


def capped(cap: float) -> Shape:
    """``h(m) = min(m, cap)``: a row is served once it retains ``cap``.

    Raises
    ------
    BadArgument
        ``cap`` is not positive.
    """
    _require_positive(cap, "cap")
    return Shape(
        f"min(m, {cap:g})",
        lambda m: np.minimum(m, cap),
        lambda m: np.where(m < cap, 1.0, 0.0),
        lambda s: np.where(s < 1.0, cap, 0.0),
    )


def _require_positive(number: object, name: str) -> None:
    """Refuse a parameter that is not a positive finite number."""
    if not isinstance(number, (int, float)) or not 0 < number < float("inf"):
        raise BadArgument(f"{name} must be a positive number", got=repr(number))
