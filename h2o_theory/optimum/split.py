"""One budget for many heads: the exact static split, from the budget curves of the heads."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from h2o_theory.annotations import IntArray
from h2o_theory.errors import BadArgument, BadBudget
from h2o_theory.optimum.arguments import require_integer
from h2o_theory.optimum.curve import BudgetCurve
from h2o_theory.optimum.fixed_point import FRACTION_BITS

__all__ = ["Split", "split_budget"]


@dataclass(frozen=True, eq=False)
class Split:
    """How a total budget is best divided over heads, and what an even split retains (read-only).

    Attributes
    ----------
    total : int
        KV entries of all heads together, each query's own entry in each head included.
    budgets : numpy.ndarray [H] int64
        Best budget of each head; they sum to ``total``.
    values : numpy.ndarray [H] int64
        The optimum of each head at its budget, in units of ``2**-fraction_bits``.
    uniform_budgets, uniform_values : numpy.ndarray [H] int64
        The same when all heads get as much as the others, the first ones one more.
    price : int
        Gain of the last entry given out, or the largest on offer if there was none to give.
    limited : tuple of int
        Heads whose curve ended while its last gain was above ``price``. If there are any the split
        is the best *within the curves* only; longer curves of these heads may allow a better one.
    n_scored : int
        Scored rows of all heads together.
    fraction_bits : int
    """

    total: int
    budgets: np.ndarray
    values: np.ndarray
    uniform_budgets: np.ndarray
    uniform_values: np.ndarray
    price: int
    limited: tuple[int, ...]
    n_scored: int
    fraction_bits: int = FRACTION_BITS

    @property
    def value(self) -> int:
        """Retained mass of the best split, summed over heads, in units of ``2**-fraction_bits``."""
        return sum(self.values.tolist())

    @property
    def uniform_value(self) -> int:
        """Retained mass of the even split, in the same units."""
        return sum(self.uniform_values.tolist())

    @property
    def exact(self) -> bool:
        """Whether no static split whatever retains more."""
        return not self.limited

    @property
    def retained_mass(self) -> tuple[float, float]:
        """(even split, best split) as mean retained mass of a scored row; NaN if there is none."""
        if self.n_scored == 0:
            return float("nan"), float("nan")
        unit = 2.0**self.fraction_bits * self.n_scored
        return self.uniform_value / unit, self.value / unit


def split_budget(curves: Iterable[BudgetCurve], total: int) -> Split:
    """Divide a total budget over heads so that the retained mass is largest, exactly.

    ::

        max  sum_h J_OPT_h(k_h)    subject to    sum_h k_h <= total,    k_h >= 1.

    Theorem. The gains ``J(k+1) - J(k)`` of each head never increase (:func:`optimum_curve`), so
    taking the ``total - H`` largest gains of all heads is optimal: greedy is exact for the
    allocation of units among separable concave functions.

    Parameters
    ----------
    curves : sequence of BudgetCurve
        One for each head, at least one; lengths and prefills may differ.
    total : int
        At least one entry for each head, at most what the curves cover together.

    Returns
    -------
    Split
        Among equal gains the first head goes first.

    Raises
    ------
    BadArgument
        Not a sequence of budget curves.
    BadBudget
        ``total`` is below one for each head, above what the curves cover, or the even split
        needs a longer curve.

    Notes
    -----
    O(K log K) time for the K gains of all curves. Static: each head keeps its budget for the whole
    trace; :func:`pooled_bound` bounds what budgets that move between heads could add.

    Source: greedy for separable concave resource allocation (Gross 1956; Ibaraki, Katoh,
    "Resource Allocation Problems", 1988).

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.1, 0.7, 0.2, 0], [0.6, 0.1, 0.1, 0.2]])
    >>> from h2o_theory.optimum import optimum_curve, to_fixed_point
    >>> curve = optimum_curve(to_fixed_point(rows), 4)
    >>> split_budget([curve, curve], 5).budgets
    array([3, 2])
    """
    curves = _usable(curves)
    total = require_integer(total, "total")
    most = sum(curve.values.size for curve in curves)
    if not len(curves) <= total <= most:
        raise BadBudget(
            f"total must be {len(curves)} to {most}: one for each head, up to what curves cover",
            got=total,
            hint="Solve the curves up to a larger max_budget." if total > most else "",
        )
    uniform = _even(curves, total)
    head = np.repeat(np.arange(len(curves)), [curve.gains.size for curve in curves])
    gain = np.concatenate([curve.gains for curve in curves])
    best = np.argsort(-gain, kind="stable")[: total - len(curves)]
    budgets = 1 + np.bincount(head[best], minlength=len(curves))
    price = int(gain[best[-1]]) if best.size else int(gain.max(initial=0))
    limited = [h for h, curve in enumerate(curves) if _is_limited(curve, budgets[h], price)]
    scored = sum(curve.n_scored for curve in curves)
    arrays = [budgets, _values(curves, budgets), uniform, _values(curves, uniform)]
    for array in arrays:
        array.flags.writeable = False
    return Split(total, *arrays, price, tuple(limited) if best.size else (), scored)


def _usable(curves: Iterable[BudgetCurve]) -> list[BudgetCurve]:
    """A list of at least one budget curve."""
    curves = list(curves)
    wrong = [type(curve).__name__ for curve in curves if not isinstance(curve, BudgetCurve)]
    if wrong or not curves:
        raise BadArgument(
            "curves must be budget curves, one for each head, as optimum_curve returns them",
            got=f"a {wrong[0]}" if wrong else "none",
        )
    return curves


def _even(curves: Sequence[BudgetCurve], total: int) -> IntArray:
    """The same budget for all heads; the first ``total mod H`` get one more, none above its T."""
    each, rest = divmod(total, len(curves))
    tokens = np.array([curve.tokens for curve in curves])
    budgets = np.minimum(each + (np.arange(len(curves)) < rest), tokens)
    for h, curve in enumerate(curves):
        if budgets[h] > curve.values.size:
            raise BadBudget(
                f"curves[{h}] is too short for the even split: it must reach budget {budgets[h]}",
                got=f"max_budget {curve.values.size}",
                hint="Solve the curves up to a larger max_budget.",
            )
    return budgets


def _values(curves: Sequence[BudgetCurve], budgets: IntArray) -> IntArray:
    """The optimum of each head at its budget."""
    return np.array([curve.values[k - 1] for curve, k in zip(curves, budgets, strict=True)])


def _is_limited(curve: BudgetCurve, budget: int, price: int) -> bool:
    """Whether a longer curve might have been given more: gains beyond are at most the last one."""
    if budget < curve.values.size or budget == curve.tokens:
        return False
    return budget == 1 or int(curve.gains[-1]) > price
