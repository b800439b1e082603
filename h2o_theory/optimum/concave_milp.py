"""The exact optimum of a concave row objective at small lengths, by mixed-integer programming."""

import numpy as np
from numpy.typing import ArrayLike

from h2o_theory.annotations import FloatArray, IntArray
from h2o_theory.dependencies import require
from h2o_theory.optimum.concave import TOLERANCE, ConcaveInterval, seen_masses, usable_problem
from h2o_theory.optimum.deadline import Deadline
from h2o_theory.optimum.schedule import first_shared_row, keep_slots_full
from h2o_theory.optimum.shapes import Shape

__all__ = ["concave_optimum"]

_FIRST_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def concave_optimum(
    mean_rows: ArrayLike,
    budget: int,
    shape: Shape,
    *,
    prefill: int = 0,
    time_limit: float | None = None,
) -> ConcaveInterval:
    """Largest sum over rows of a concave function of the retained mass, for up to 128 tokens.

    ::

        max  sum_t u_t   subject to   u_t <= h(m) + h'(m) (m_t - m)   at chosen masses m,
             m_t = a[t,t] + sum_j a[t,j] x[t,j],    sum_j x[t,j] <= k-1,
             x[t,j] <= x[t-1,j],    x binary.

    The lines lie above h, so the optimum of the programme is an upper bound, and h of the masses
    of its schedule a lower bound. Lines at these masses are added until both agree.

    Parameters
    ----------
    mean_rows, budget, shape, prefill
        As in :func:`concave_interval`.
    time_limit : float, optional
        Seconds for all programmes together. What was proved by then is returned.

    Returns
    -------
    ConcaveInterval
        Status ``"optimal"``; or ``"time limit"`` and the interval proved so far; or
        ``"finished"`` if a further line would change nothing, as can happen where h is infinitely
        steep and a row retains nothing.

    Raises
    ------
    MissingDependency
        scipy, which carries the HiGHS solver, is not installed.
    BadArgument, BadBudget, OutOfRange, InvalidAttention
        As :func:`concave_interval` does.

    Notes
    -----
    T^2/2 binary variables: seconds at T = 64, minutes beyond 128. Exact to HiGHS's tolerance of
    about 1e-6.

    Source: outer approximation (Duran, Grossmann 1986) with HiGHS.
    """
    end = Deadline(time_limit)
    rows, budget, prefill = usable_problem(mean_rows, budget, shape, prefill)
    programme = _Programme(rows, budget, prefill)
    full = rows[prefill:].sum(axis=1)
    for share in _FIRST_SHARES:
        programme.add_lines(shape, share * full)

    best = keep_slots_full(np.maximum(np.arange(len(rows)), prefill - 1), budget, prefill)
    masses = seen_masses(rows, best, prefill)
    lower, upper = float(shape.value(masses).sum()), float(shape.value(full).sum())
    rounds, status = 0, "time limit"
    while not _agree(lower, upper) and not end.passed:
        bound, evicted_at = programme.solve(end.left)
        rounds += 1
        upper = min(upper, bound)
        if evicted_at is None:
            break
        before, masses = masses, seen_masses(rows, evicted_at, prefill)
        if shape.value(masses).sum() > lower:
            lower, best = float(shape.value(masses).sum()), evicted_at
        if rounds > 1 and (masses == before).all() and not _agree(lower, upper):
            status = "finished"
            break
        programme.add_lines(shape, masses)
    status = "optimal" if _agree(lower, upper) else status
    best.flags.writeable = False
    method = f"{rounds} mixed-integer programmes with added lines (HiGHS)"
    return ConcaveInterval(
        lower, max(lower, upper), best, None, status, rounds, method, shape.name, budget, prefill
    )


def _agree(lower: float, upper: float) -> bool:
    """Whether a lower and an upper bound are the same, up to the solver's tolerance."""
    return upper - lower <= TOLERANCE * max(upper, 1.0)


class _Programme:
    """The mixed-integer programme: u of each scored row, then x of each (row, older key)."""

    def __init__(self, rows: FloatArray, budget: int, prefill: int) -> None:
        self._optimize, self._sparse = require("scipy.optimize"), require("scipy.sparse")
        self._tokens, self._budget, self._prefill = len(rows), budget, prefill
        first = first_shared_row(prefill)
        scored = len(rows) - prefill
        t, j = np.nonzero(np.tril(np.ones(rows.shape), -1))
        self._t, self._j = t[t >= first], j[t >= first]
        self._share = rows[self._t, self._j]
        self._own = rows.diagonal()[prefill:]
        self._most = rows[prefill:].sum(axis=1)
        self._entries, self._limits = [], []

        column = np.full(rows.shape, -1)
        column[self._t, self._j] = scored + np.arange(self._t.size)
        self._add(self._t - first, column[self._t, self._j], 1.0, np.full(scored, budget - 1.0))
        again = (self._t > first) & (self._j < self._t - 1)
        t, j = self._t[again], self._j[again]
        pair = np.tile(np.arange(t.size), 2)
        columns = np.concatenate([column[t, j], column[t - 1, j]])
        self._add(pair, columns, np.repeat([1.0, -1.0], t.size), np.zeros(t.size))

    def _add(
        self, row: IntArray, column: IntArray, coefficient: FloatArray | float, limits: FloatArray
    ) -> None:
        """Constraints ``sum of coefficient * variable <= limit``; rows counted from 0."""
        coefficient = np.broadcast_to(coefficient, row.shape)
        self._entries.append((row + sum(map(len, self._limits)), column, coefficient))
        self._limits.append(limits)

    def add_lines(self, shape: Shape, masses: FloatArray) -> None:
        """Bound each u by the line above h whose slope is that of h at a mass."""
        slopes = shape.slope(masses)
        scored = np.arange(masses.size)
        of_row = self._t - self._prefill
        row = np.concatenate([scored, of_row])
        column = np.concatenate([scored, masses.size + np.arange(self._t.size)])
        coefficient = np.concatenate([np.ones(masses.size), -slopes[of_row] * self._share])
        limits = shape.intercept(slopes, self._most) + slopes * self._own
        self._add(row, column, coefficient, limits)

    def solve(self, seconds: float) -> tuple[float, IntArray | None]:
        """Upper bound, and the schedule of the best solution found or None."""
        row, column, coefficient = map(np.concatenate, zip(*self._entries, strict=True))
        limits = np.concatenate(self._limits)
        scored, variables = self._own.size, self._own.size + self._t.size
        shape = (limits.size, variables)
        matrix = self._sparse.coo_array((coefficient, (row, column)), shape=shape)
        is_u = np.arange(variables) < scored
        result = self._optimize.milp(
            -is_u.astype(np.float64),
            integrality=~is_u,
            bounds=self._optimize.Bounds(0.0, np.where(is_u, np.inf, 1.0)),
            constraints=self._optimize.LinearConstraint(matrix.tocsr(), -np.inf, limits),
            options={"mip_rel_gap": 0.0, "time_limit": max(min(seconds, 1e9), 1e-3)},
        )
        bound = np.inf if result.mip_dual_bound is None else -result.mip_dual_bound
        if result.x is None:
            return bound, None
        kept = result.x[scored:] > 0.5
        planned = np.maximum(np.arange(self._tokens), self._prefill - 1)
        np.maximum.at(planned, self._j[kept], self._t[kept])
        return bound, keep_slots_full(planned, self._budget, self._prefill)
