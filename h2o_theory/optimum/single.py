"""The exact optimum of one budget: near-optimal prices first, then local repair."""

import numpy as np

from h2o_theory.annotations import IntArray
from h2o_theory.optimum.arguments import require_budget, require_prefill
from h2o_theory.optimum.fixed_point import UNITS, require_fixed_point
from h2o_theory.optimum.path import augment, build_network, empty_flow
from h2o_theory.optimum.prices import constant_price, descend, in_units, new_pricing
from h2o_theory.optimum.repair import best_ends, new_plan, settle_excess
from h2o_theory.optimum.schedule import Schedule, first_shared_row, keep_slots_full
from h2o_theory.optimum.sums import single_precision

__all__ = ["optimum_at"]

# More steps make better prices and less to repair; at T = 2048 the sum is flat from 15 to 40.
_STEPS = 20


def optimum_at(fixed: IntArray, budget: int, *, prefill: int = 0) -> Schedule:
    """Largest retained mass of any eviction schedule of one budget, exactly.

    The same optimum as that of :func:`optimum_curve` at this budget, and a schedule with prices
    that prove it (:func:`check_certificate`), without the budgets below: several times quicker.

    A constant price that fills the slots and a few subgradient steps give prices within about
    0.1 % of optimal. At those each key stays while it pays; this fills some steps with too many
    keys and others with too few, and each excess is repaired along a shortest path to the nearest
    deficit. All arithmetic of the repair is in integers.

    Parameters
    ----------
    fixed : numpy.ndarray [T, T] int64
        Rows in fixed point, as :func:`to_fixed_point` returns them.
    budget : int
        k, 1 .. T: every KV entry a query sees counts, its own included.
    prefill : int
        p, 0 .. T; rows ``0 .. p-1`` see everything and are not scored.

    Returns
    -------
    Schedule
        ``value`` is the optimum; schedules of equal value may differ from those of the curve.

    Raises
    ------
    BadBudget
        A budget below 1 or above T.
    OutOfRange
        ``prefill`` is not in 0 .. T.
    BadArgument, InvalidAttention
        ``fixed`` is not causal, non-negative fixed point, or a number is not an integer.

    Notes
    -----
    O(T^2) time for each of about 30 price steps, O(T) to O(T^2) for each repair, of which there
    are about as many as slots; about 8 T^2 bytes beside ``fixed``. Releases the GIL.

    Where ties are so many that prices say little (all entries equal, for one) repairs would reach
    across the whole trace. When they have cost about as much as the curve of this budget, it is
    solved in their place; the worst case seen is three times the time of :func:`optimum_curve`.

    Source: min-cost flow from a pseudoflow by successive shortest paths (Ahuja, Magnanti, Orlin,
    "Network Flows", 1993, sec. 9.7); the theorem that makes it exact is in :func:`optimum_curve`.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.1, 0.7, 0.2, 0], [0.6, 0.1, 0.1, 0.2]])
    >>> from h2o_theory.optimum import to_fixed_point
    >>> schedule = optimum_at(to_fixed_point(rows), 2)
    >>> schedule.evicted_at, schedule.status
    (array([1, 2, 4, 4]), 'optimal')
    >>> round(schedule.value / 2**36, 6)
    3.2
    """
    fixed = require_fixed_point(fixed)
    tokens = fixed.shape[0]
    prefill = require_prefill(prefill, tokens)
    budget = require_budget(budget, tokens, "budget")

    first = first_shared_row(prefill)
    value = int(fixed.diagonal()[prefill:].sum())
    planned, prices = np.full(tokens, tokens - 1), np.zeros(0, dtype=np.int64)
    method = "no row shares retained entries"
    if first < tokens:
        gained, ends, prices, method = _solve(fixed, first, budget - 1)
        value += gained
        planned[:-1] = first - 1 + ends
    evicted_at = keep_slots_full(planned, budget, prefill)
    evicted_at.flags.writeable = False
    prices.flags.writeable = False
    return Schedule(budget, prefill, value, evicted_at, prices, value, method)


def _solve(fixed: IntArray, first: int, slots: int) -> tuple[int, IntArray, IntArray, str]:
    """Gain, ends, prices and method of the optimum of ``slots`` slots; at least one shared row."""
    network = build_network(fixed, first)
    potential = np.zeros(fixed.shape[0] - first + 1, dtype=np.int64)
    np.cumsum(_first_prices(fixed, first, slots), out=potential[1:])
    plan = new_plan(network, potential, slots)
    ends, method = plan.ends, "prices by subgradient steps, repaired along shortest paths"
    if not settle_excess(network, plan, slots * potential.size):
        flow = empty_flow(fixed, first, network)
        augment(network, flow, np.zeros(slots, dtype=np.int64))
        ends, potential, method = flow.ends, flow.potential, "successive shortest paths"
    gained = sum(network.sums[network.offset + ends].tolist())
    surplus = best_ends(network, potential, np.empty_like(ends))
    assert gained == slots * int(potential[-1] - potential[0]) + surplus, "not optimal"
    return gained, ends, np.diff(potential), method


def _first_prices(fixed: IntArray, first: int, slots: int) -> IntArray:
    """Prices int64 [N], near-optimal; those of no slot are what no key can pay."""
    row_mass = fixed[first:].sum(axis=1) - fixed.diagonal()[first:]
    mass = int(row_mass.sum())
    if slots == 0 or mass == 0:
        return row_mass
    rows = np.empty((1, *fixed.shape), dtype=np.float32)
    single_precision(fixed, rows[0])
    pricing = new_pricing(rows, first)
    scale = constant_price(rows, first, slots, mass / UNITS, pricing)
    for _ in range(_STEPS):
        descend(rows, first, slots, scale, pricing)
    return in_units(pricing.best, UNITS, mass)
