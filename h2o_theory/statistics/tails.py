"""Other laws for the same tail, and which of two laws the values speak for."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from h2o_theory.annotations import FloatArray
from h2o_theory.dependencies import require
from h2o_theory.statistics.power_law import PowerLaw

__all__ = ["ALTERNATIVES", "LawComparison", "compare_laws"]

ALTERNATIVES = ("log-normal", "exponential", "truncated power law")


@dataclass(frozen=True)
class LawComparison:
    """A likelihood-ratio test of the power law against another law.

    Attributes
    ----------
    alternative : str
    log_ratio : float
        Log-likelihood of the power law minus that of the alternative, nats; positive speaks for
        the power law.
    p : float
        Probability of a ratio this far from zero if neither law were the better one.
    nested : bool
        True for the truncated power law, which contains the power law and so never fits worse.
    """

    alternative: str
    log_ratio: float
    p: float
    nested: bool

    @property
    def verdict(self) -> str:
        """What the test says at the 10 % level."""
        if self.p >= 0.1:
            return "undecided"
        return "power law" if self.log_ratio > 0 else self.alternative


def compare_laws(values: ArrayLike, law: PowerLaw) -> list[LawComparison]:
    r"""Likelihood-ratio tests of a fitted power law against :data:`ALTERNATIVES`.

    All laws are fitted by maximum likelihood to the values at or above ``law.x_min`` and
    normalised there. With the pointwise differences :math:`d_i = \ell^{PL}_i - \ell^{alt}_i`,

    .. math:: R = \sum_i d_i, \qquad p = \mathrm{erfc}\bigl(|R| / \sqrt{2 n}\, \sigma_d\bigr)

    for the laws that are not nested (Vuong 1989); for the truncated power law, which is,
    :math:`p = P(\chi^2_1 \ge -2R)`, conservative as the cut-off cannot be negative.

    Parameters
    ----------
    values : array [n]
    law : PowerLaw

    Returns
    -------
    list of LawComparison

    Raises
    ------
    MissingDependency
        If scipy is not installed.

    Notes
    -----
    Source: Clauset, Shalizi, Newman 2009, section 5.
    """
    special = require("scipy.special")
    values = np.asarray(values, dtype=np.float64)
    u = np.sort(values[values >= law.x_min]) / law.x_min
    ours = np.log(law.exponent - 1) - law.exponent * np.log(u)
    found = []
    for name, density in (("log-normal", _log_normal(u)), ("exponential", _exponential(u))):
        difference = ours - density
        total, spread = difference.sum(), difference.std()
        flat = spread <= 1e-12
        p = 1.0 if flat else special.erfc(abs(total) / (np.sqrt(2 * len(u)) * spread))
        found.append(LawComparison(name, float(total), float(p), nested=False))
    better = max(0.0, float(_truncated(u, law.exponent) - ours.sum()))
    p = float(special.chdtrc(1, 2 * better))
    found.append(LawComparison("truncated power law", -better, p, nested=True))
    return found


def _exponential(u: FloatArray) -> FloatArray:
    rate = 1 / (u.mean() - 1)
    return np.log(rate) - rate * (u - 1)


def _log_normal(u: FloatArray) -> FloatArray:
    """Log density of the best log-normal law cut off below u = 1."""
    optimize, special = require("scipy.optimize"), require("scipy.special")
    logs = np.log(u)

    def density(parameters: FloatArray) -> FloatArray:
        centre, width = parameters[0], np.exp(parameters[1])
        scaled = (logs - centre) / width
        reach = special.log_ndtr(centre / width)
        return -logs - np.log(width) - 0.5 * np.log(2 * np.pi) - 0.5 * scaled**2 - reach

    spread = np.log(max(logs.std(), 1e-3))
    starts = ((logs.mean(), spread), (0.0, spread), (-3 * np.exp(spread), spread + 0.5))
    # The likelihood has a long flat ridge towards the power law: a far end of it is enough.
    bounds = [(-200.0, logs.max() + 1), (-7.0, 5.0)]
    fits = [
        optimize.minimize(
            lambda parameters: -density(parameters).sum(), start, bounds=bounds, method="L-BFGS-B"
        )
        for start in starts
    ]
    return density(min(fits, key=lambda fit: fit.fun).x)


def _truncated(u: FloatArray, exponent: float) -> float:
    """Largest log-likelihood of u^-a exp(-b u) on u >= 1, over a and b >= 0."""
    optimize = require("scipy.optimize")
    logs, total, n = np.log(u).sum(), u.sum(), len(u)

    def loss(parameters: FloatArray) -> float:
        a, b = parameters[0], np.exp(parameters[1])
        return a * logs + b * total + n * log_tail_integral(a, b)

    starts = [(exponent, np.log(cut / total * n)) for cut in (1e-3, 0.1, 1.0)]
    bounds = [(-5.0, exponent + 5), (-25.0, 5.0)]
    return -min(
        optimize.minimize(loss, np.clip(start, *zip(*bounds, strict=True)), bounds=bounds,
                          method="L-BFGS-B").fun
        for start in starts
    )  # fmt: skip


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(160)


def log_tail_integral(a: float, b: float) -> float:
    r"""Logarithm of :math:`\int_1^\infty u^{-a} e^{-b u} du`, the generalised exponential integral.

    By Gauss-Legendre in y = ln u on the range where the integrand exceeds e^-45 of its peak.
    """
    peak = max(0.0, np.log((1 - a) / b)) if a < 1 else 0.0

    def exponent(y: FloatArray | float) -> FloatArray | float:
        return (1 - a) * y - b * np.exp(y)

    top = exponent(peak)
    end = peak + 1.0
    while exponent(end) > top - 45.0:
        end += 1.0 + 0.5 * (end - peak)
    start = 0.0
    y = start + (end - start) * (_NODES + 1) / 2
    weights = _WEIGHTS * (end - start) / 2
    return float(top + np.log(weights @ np.exp(exponent(y) - top)))
