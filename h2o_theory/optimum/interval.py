"""A certified interval around the optimum, for traces too long to solve exactly."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from h2o_theory.annotations import IntArray
from h2o_theory.optimum.arguments import (
    require_at_least,
    require_budget,
    require_prefill,
)
from h2o_theory.optimum.deadline import Deadline
from h2o_theory.optimum.fixed_point import FRACTION_BITS, UNITS
from h2o_theory.optimum.guided import guided_schedule
from h2o_theory.optimum.prices import constant_price, descend, in_units, new_pricing
from h2o_theory.optimum.schedule import Schedule, first_shared_row
from h2o_theory.optimum.sums import (
    own_mass,
    retained,
    row_masses,
    single_precision,
    surplus,
    usable,
)

__all__ = ["OptimumInterval", "optimum_interval"]

_STEPS_PER_SCHEDULE = 20


@dataclass(frozen=True, eq=False)
class OptimumInterval:
    """Proof that the optimum J_OPT(k) lies in ``lower .. upper``, both attained by what is here.

    Attributes
    ----------
    lower : int
        Retained mass of ``schedule`` over the scored rows, in units of ``2**-fraction_bits``.
    upper : int
        The dual bound of ``schedule.prices``; no schedule of this budget retains more.
    schedule : Schedule
        The best schedule found, with the prices of the upper bound.
    status : str
        ``"optimal"`` when both sides meet; ``"finished"`` when all steps were taken;
        ``"time limit"`` when they were not.
    steps : int
        Subgradient steps taken.
    method : str
        How both sides were obtained.
    tokens : int
        T.
    fraction_bits : int
    """

    lower: int
    upper: int
    schedule: Schedule
    status: str
    steps: int
    method: str
    tokens: int
    fraction_bits: int = FRACTION_BITS

    @property
    def gap(self) -> int:
        """``upper - lower``, in the same units."""
        return self.upper - self.lower

    @property
    def relative_gap(self) -> float:
        """The gap over the upper bound: the optimum is at most this share better than the lower."""
        return self.gap / self.upper if self.upper else 0.0

    @property
    def retained_mass(self) -> tuple[float, float]:
        """(lower, upper) as mean retained mass of a scored row; NaN when no row is scored."""
        scored = self.tokens - self.schedule.prefill
        if scored == 0:
            return float("nan"), float("nan")
        return self.lower / UNITS / scored, self.upper / UNITS / scored


def optimum_interval(
    rows: ArrayLike,
    budget: int,
    *,
    prefill: int = 0,
    steps: int = 60,
    time_limit: float | None = None,
) -> OptimumInterval:
    """Bound the optimum of one budget from both sides in O(T^2) time a step, without solving it.

    For any prices ``lam >= 0`` of a slot in each row (:func:`check_certificate` has the bound)::

        J(schedule) <= J_OPT(k) <= own + (k-1) * sum(lam) + sum_j max_q [V_j(q) - paid_j(q)]

    A constant price that fills the slots starts; subgradient steps lower the bound; a policy that
    evicts the entry of least net future value at the prices gives the schedule. Both sides are
    then evaluated in integers, row by row. On soft attention the gap is below 0.2 % after 60 steps,
    most often below 0.05 %.

    Parameters
    ----------
    rows : numpy.ndarray [T, T]
        Rows in fixed point (int64), or mean rows as floats, rounded here row by row to the same
        fixed point. float32 is read as it is and takes no further T^2 memory.
    budget : int
        k, 1 .. T: every KV entry a query sees counts, its own included.
    prefill : int
        p, 0 .. T; rows ``0 .. p-1`` see everything and are not scored.
    steps : int
        Subgradient steps, at least 0.
    time_limit : float, optional
        Seconds after which no further step is begun. What was proved by then is returned: the
        constant price and its schedule always are.

    Returns
    -------
    OptimumInterval
        ``check_certificate(to_fixed_point(rows), interval.schedule)`` recomputes both sides.

    Raises
    ------
    BadBudget, OutOfRange
        As :func:`optimum_at` does.
    BadArgument, InvalidAttention
        ``rows`` is not causal, finite, non-negative attention, or a number is unusable.

    Notes
    -----
    About 25 passes over the rows, one for each step, and three for a schedule every 20 steps;
    4 T^2 bytes for a copy in single precision unless the rows are float32. Rounding to single
    precision affects which prices and which schedule are found, not what is proved about them.
    Up to T = 8192 :func:`optimum_at` takes about as long, where its 16 T^2 bytes can be had.

    Source: Lagrangian relaxation of the slots; the price-guided schedule is a departure from plain
    rounding, which would leave slots empty.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.1, 0.7, 0.2, 0], [0.6, 0.1, 0.1, 0.2]])
    >>> lower, upper = optimum_interval(rows, 2).retained_mass
    >>> bool(lower <= 0.8 <= upper + 1e-9), round(upper, 4)
    (True, 0.8)
    """
    end = Deadline(time_limit)
    rows = usable(rows, "rows")
    tokens = len(rows)
    prefill = require_prefill(prefill, tokens)
    budget = require_budget(budget, tokens, "budget")
    steps = require_at_least(steps, 0, "steps")

    first = first_shared_row(prefill)
    masses = row_masses(rows, first)
    prices, evicted_at, taken = _search(rows, budget, prefill, masses, steps, end)
    upper = own_mass(rows, prefill) + (budget - 1) * sum(prices.tolist())
    upper += surplus(rows, first, prices)
    lower = retained(rows, prefill, evicted_at)
    status = "optimal" if lower == upper else "finished" if taken == steps else "time limit"
    method = f"constant price and {taken} subgradient steps; price-guided schedule"
    evicted_at.flags.writeable = False
    prices.flags.writeable = False
    schedule = Schedule(budget, prefill, lower, evicted_at, prices, upper, method)
    return OptimumInterval(lower, upper, schedule, status, taken, method, tokens)


def _search(
    rows: NDArray[Any], budget: int, prefill: int, masses: IntArray, steps: int, end: Deadline
) -> tuple[IntArray, IntArray, int]:
    """Prices int64 [N], a schedule, and the number of steps taken."""
    tokens, first, slots = len(rows), first_shared_row(prefill), budget - 1
    mass = int(masses.sum())
    if first >= tokens:
        return masses, np.full(tokens, tokens, dtype=np.int64), steps
    single = rows
    if rows.dtype != np.float32:
        single = np.empty(rows.shape, dtype=np.float32)
        single_precision(rows, single)
    if slots == 0 or mass == 0:  # no key can pay the whole mass of a row
        prices = (masses / UNITS).astype(np.float32)
        return masses, guided_schedule(single, budget, prefill, prices)[0], steps

    heads = single[None]
    pricing = new_pricing(heads, first)
    scale = constant_price(heads, first, slots, mass / UNITS, pricing)
    taken, most, evicted_at = 0, -1.0, None
    while True:
        descend(heads, first, slots, scale, pricing)
        last = taken == steps or end.passed
        # The schedules of some prices are better than those of slightly better prices.
        if last or taken % _STEPS_PER_SCHEDULE == 0:
            candidate, kept = guided_schedule(single, budget, prefill, pricing.best)
            if kept > most:
                most, evicted_at = kept, candidate
        if last:
            return in_units(pricing.best, UNITS, mass), evicted_at, taken
        taken += 1
