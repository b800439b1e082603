r"""The conditions of the H2O paper's guarantee, measured along one schedule.

Notation, for t from the last step before the cache is full: v_t = F(R_{t-1}, t, R_t) is the value
of the policy's set, c_t = F(R_{t-1}, t, R_{t-1}) what it had before the swap, O_t the best value of
the step (opt of Definition D.27, bounded where it is not known exactly), v~, c~ the same under f~.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from h2o_theory.annotations import FloatArray, IntArray
from h2o_theory.errors import BadArgument
from h2o_theory.submodular.dynamic import DynamicFunction
from h2o_theory.submodular.trajectory import Trajectory
from h2o_theory.submodular.weighted_reading import largest_excess

__all__ = ["Conditions", "measure_conditions"]

# A policy's swap counts as the best one if it is worth no less than this share of it.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Conditions:
    r"""What was measured at each step, float64 [N] unless said otherwise; read-only.

    Attributes
    ----------
    step : numpy.ndarray [N] int64
        t; the paper's i is t + 1. The first is the base of the induction: nothing was chosen yet.
    value : numpy.ndarray
        v_t.
    carried : numpy.ndarray
        c_t; NaN at the first step.
    best_lower, best_upper : numpy.ndarray
        Bounds on O_t, equal where it is exact.
    theta : numpy.ndarray
        Smallest theta >= 0 with ``c_t >= (1 - theta) v_{t-1}``: condition 1, D.25. 0 at the first.
    swap_loss : numpy.ndarray
        Smallest s >= 0 with ``v_t >= (1 - s) c_t``. Lemma D.29 takes it for 0 "by monotonicity".
    gamma : numpy.ndarray
        Smallest gamma >= 0 with ``U_t >= (1 - gamma) U_{t-1}``, U_t = ``best_upper``: condition 2
        as defined, D.28. It is that of O_t where the bounds on O_t and O_{t-1} are equal; the
        bounds that follow from it hold with any U_t >= O_t.
    gamma_used : numpy.ndarray
        Smallest gamma >= 0 with ``U_{t-1} >= (1 - gamma) U_t``: the direction that the proof of
        Lemma D.29 uses.
    pace : numpy.ndarray
        Smallest x >= 0 with ``c_t / U_t >= (1 - x) v_{t-1} / U_{t-1}``: by how much the carried
        set falls behind the best value. One condition in place of theta and gamma: what both gain
        from a further row counts for neither.
    seen_value, seen_carried : numpy.ndarray
        v~_t and c~_t, under f~ (f itself if there is none).
    seen_theta, seen_swap_loss, seen_pace : numpy.ndarray
        As theta, swap_loss and pace, with v~ and c~ for v and c. The first two are known to the
        policy while it runs.
    excess : numpy.ndarray
        An eps0 with ``f~(X) <= f(X) + eps0`` for all X of at most k tokens at (R_{t-1}, t): D.30.
    is_swap_rule : numpy.ndarray of bool
        R_t is what rule D.22 chooses under f~ (any choice among equals); True at the first.
    budget, size, prefill, tokens : int
        ``size = budget - 1`` is the paper's k, ``tokens`` its n.
    exact, approximate : str
        Names of f and f~.
    """

    step: np.ndarray
    value: np.ndarray
    carried: np.ndarray
    best_lower: np.ndarray
    best_upper: np.ndarray
    theta: np.ndarray
    swap_loss: np.ndarray
    gamma: np.ndarray
    gamma_used: np.ndarray
    pace: np.ndarray
    seen_value: np.ndarray
    seen_carried: np.ndarray
    seen_theta: np.ndarray
    seen_swap_loss: np.ndarray
    seen_pace: np.ndarray
    excess: np.ndarray
    is_swap_rule: np.ndarray
    budget: int
    size: int
    prefill: int
    tokens: int
    exact: str
    approximate: str

    @property
    def ratio(self) -> FloatArray:
        """What is certain of ``v_t / O_t``: v_t over the upper bound; 1 where both are 0."""
        return share(self.value, self.best_upper)


def measure_conditions(
    exact: DynamicFunction,
    evicted_at: ArrayLike,
    budget: int,
    *,
    approximate: DynamicFunction | None = None,
    prefill: int = 0,
) -> Conditions:
    """Measure theta, gamma, eps0 and the loss of each swap along a schedule.

    Parameters
    ----------
    exact : DynamicFunction
        f: what the guarantee is about; values of at least 0.
    evicted_at : array_like [T]
        The schedule: key j is visible to row t iff ``j <= t <= evicted_at[j]``.
    budget : int
        k, 2 .. T, the query's own entry included.
    approximate : DynamicFunction, optional
        f~: what the policy sees. Without it f~ = f, and ``excess`` is 0.
    prefill : int
        p: the first p rows see everything; one cut follows them.

    Returns
    -------
    Conditions
        Steps ``max(k - 2, p - 1) .. T-2``.

    Raises
    ------
    BadArgument, BadBudget
        The schedule is none that an eviction policy can have, no step is left to measure, a
        value is negative, or f~ cannot be compared with f.

    Notes
    -----
    O(T^2) for weighted readings; greedy at each step for ``row_sums``.
    """
    seen = exact if approximate is None else approximate
    path = Trajectory(evicted_at, exact.tokens, budget, prefill)
    best = [exact.best(t, path.size) for t in path.steps]
    before = path.retained(path.first - 1) if path.first else np.zeros(0, dtype=np.int64)
    rows = []
    for t in path.steps:
        after = path.retained(t)
        excess = 0.0
        if approximate is not None:
            excess = largest_excess(approximate, exact, before, t, path.size)
        values = [f.value(before, t, kept) for f in (exact, seen) for kept in (after, before)]
        swap = t == path.first or values[2] >= _best_swap(seen, path, before, t)
        rows.append((*values, excess, swap))
        before = after
    value, carried, seen_value, seen_carried, excess, swap = map(np.array, zip(*rows, strict=True))
    least = min(value.min(), carried.min(), seen_value.min(), seen_carried.min())
    if least < 0:
        raise BadArgument(
            "f and f~ must be nowhere negative: the guarantee is about values of at least 0",
            where=f"{exact.name}, {seen.name}",
            got=least,
        )
    upper = np.array([bound.upper for bound in best])
    for known in (carried, seen_carried):
        known[0] = np.nan
    return Conditions(
        step=np.array(path.steps),
        value=value,
        carried=carried,
        best_lower=np.array([bound.lower for bound in best]),
        best_upper=upper,
        theta=_shortfall(carried[1:], value[:-1]),
        swap_loss=_shortfall(value[1:], carried[1:]),
        gamma=_shortfall(upper[1:], upper[:-1]),
        gamma_used=_shortfall(upper[:-1], upper[1:]),
        pace=_shortfall(share(carried[1:], upper[1:]), share(value[:-1], upper[:-1])),
        seen_value=seen_value,
        seen_carried=seen_carried,
        seen_theta=_shortfall(seen_carried[1:], seen_value[:-1]),
        seen_swap_loss=_shortfall(seen_value[1:], seen_carried[1:]),
        seen_pace=_shortfall(
            share(seen_carried[1:], upper[1:]), share(seen_value[:-1], upper[:-1])
        ),
        excess=excess,
        is_swap_rule=swap.astype(bool),
        budget=path.budget,
        size=path.size,
        prefill=prefill,
        tokens=exact.tokens,
        exact=exact.name,
        approximate=seen.name,
    )


def _best_swap(seen: DynamicFunction, path: Trajectory, before: IntArray, step: int) -> float:
    """What rule D.22 reaches under f~, up to rounding; any value will do if there is room."""
    visible = path.visible(step)
    if len(visible) <= path.size:
        return -np.inf
    selection = seen.at(before, step).select(visible)
    reached = selection.value - selection.losses().min()
    return reached - _ROUNDING * abs(selection.value)


def _shortfall(later: FloatArray, earlier: FloatArray) -> FloatArray:
    """float64 [N]: smallest x >= 0 with ``later >= (1 - x) earlier``; 0 at the first step."""
    return np.append(0.0, 1.0 - np.minimum(share(later, earlier), 1.0))


def share(part: FloatArray, whole: FloatArray) -> FloatArray:
    """``part / whole``, and 1 where the whole is 0."""
    return np.divide(part, whole, out=np.ones_like(whole), where=whole > 0)
