"""Proof of optimality that does not trust the solver: a schedule, prices, and weak duality.

For any prices ``lam >= 0`` of a slot during each row, with prefix sums y and c = k-1 retained
slots::

    J_OPT <= own + c * y_N + sum_j max_{q >= arrival_j} [ V_j(q) - (y_q - y_{arrival_j}) ]

because at most c slots are paid for in each row, and each token, paying, does best alone. ``own``
is the mass of the scored rows on their own entry, ``V_j(q)`` what key j gives to the rows from its
arrival up to q. At optimal prices both sides are equal (LP duality and integrality), so a feasible
schedule whose value meets the bound is optimal, however either was found.
"""

from dataclasses import dataclass

import numpy as np

from h2o_theory.annotations import IntArray
from h2o_theory.optimum.fixed_point import TOTAL_LIMIT, require_fixed_point
from h2o_theory.optimum.schedule import Schedule

__all__ = ["Certificate", "check_certificate"]


@dataclass(frozen=True)
class Certificate:
    """What the check of one schedule found, in units of ``2**-36``.

    Attributes
    ----------
    feasible : bool
        The schedule is one the replay step allows.
    value : int or None
        Retained mass of the schedule, recomputed from the rows; None if it cannot be read.
    bound : int or None
        No schedule of this budget retains more; None if the prices prove nothing.
    gap : int or None
        ``bound - value``; 0 proves a feasible schedule optimal.
    optimal : bool
        Feasible, worth what it states, gap 0, prices usable: proved optimal.
    message : str
        Everything that is wrong; ``"optimal"`` if nothing is.
    """

    feasible: bool
    value: int | None
    bound: int | None
    gap: int | None
    optimal: bool
    message: str


def check_certificate(fixed: IntArray, schedule: Schedule) -> Certificate:
    """Check from the rows alone that a schedule is feasible, worth what it says, and optimal.

    Parameters
    ----------
    fixed : numpy.ndarray [T, T] int64
        Rows in fixed point.
    schedule : Schedule

    Returns
    -------
    Certificate
        Faults of the schedule are reported in it, never raised.

    Raises
    ------
    BadArgument, InvalidAttention
        ``fixed`` itself is unusable.

    Notes
    -----
    Exact: the entries sum to less than 2**60 and so, checked here, do the prices, so every int64
    partial sum stays below 2**61; the sum over tokens and the product ``c * y_N`` are Python
    integers. O(T^2) time, about 24 T^2 bytes. Plain numpy, and no code of the solver.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.1, 0.7, 0.2, 0], [0.6, 0.1, 0.1, 0.2]])
    >>> from h2o_theory.optimum import optimum_at, to_fixed_point
    >>> fixed = to_fixed_point(rows)
    >>> check_certificate(fixed, optimum_at(fixed, 2)).message
    'optimal'
    """
    fixed = require_fixed_point(fixed)
    faults = _faults_of_budget(schedule, fixed.shape[0])
    if faults:
        return Certificate(False, None, None, None, False, "; ".join(faults))
    value, faults = _value(fixed, schedule)
    feasible = not faults
    if feasible and value != schedule.value:
        faults.append(f"the schedule states a value of {schedule.value}, its rows give {value}")
    bound, price_faults = _bound(fixed, schedule)
    faults += price_faults
    if bound is not None and bound != schedule.bound:
        faults.append(f"the schedule states a bound of {schedule.bound}, its prices give {bound}")
    gap = None if value is None or bound is None else bound - value
    if feasible and gap:
        faults.append(f"not proved optimal: the bound exceeds the value by {gap}")
    message = "; ".join(faults) or "optimal"
    return Certificate(feasible, value, bound, gap, not faults, message)


def _faults_of_budget(schedule: Schedule, tokens: int) -> list[str]:
    """Budget and prefill have to make sense before anything else can be read."""
    faults = []
    if schedule.budget not in range(1, tokens + 1):
        faults.append(f"budget {schedule.budget} is not in 1 .. {tokens}")
    if schedule.prefill not in range(tokens + 1):
        faults.append(f"prefill {schedule.prefill} is not in 0 .. {tokens}")
    return faults


def _value(fixed: IntArray, schedule: Schedule) -> tuple[int | None, list[str]]:
    """Retained mass from the rows (None if unreadable), and the ways the schedule is infeasible."""
    tokens, prefill = fixed.shape[0], schedule.prefill
    evicted_at = np.asarray(schedule.evicted_at)
    if evicted_at.shape != (tokens,) or evicted_at.dtype.kind != "i":
        got = f"shape {list(evicted_at.shape)} of {evicted_at.dtype}"
        return None, [f"evicted_at has {got}, expected [{tokens}] integers"]
    position = np.arange(tokens)
    visible = (position <= position[:, None]) & (position[:, None] <= evicted_at)
    seen = visible[prefill:].sum(axis=1)
    value = int(np.where(visible, fixed, 0)[prefill:].sum())

    faults = []
    for j in np.flatnonzero(evicted_at < np.maximum(position, prefill - 1))[:1]:
        faults.append(f"key {j} is evicted at {evicted_at[j]}, before its own or a prefill row")
    for j in np.flatnonzero(evicted_at > tokens)[:1]:
        faults.append(f"key {j} is evicted at {evicted_at[j]}, after the last step {tokens}")
    for t in np.flatnonzero(seen > schedule.budget)[:1]:
        faults.append(f"row {prefill + t} sees {seen[t]} entries, budget {schedule.budget}")
    return value, faults


def _bound(fixed: IntArray, schedule: Schedule) -> tuple[int | None, list[str]]:
    """The dual bound of the prices (None if they prove nothing), and what is wrong with them."""
    tokens = fixed.shape[0]
    first = max(schedule.prefill, 1)
    prices = np.asarray(schedule.prices)
    steps = max(tokens - first, 0)
    if prices.shape != (steps,) or prices.dtype.kind != "i":
        got = f"shape {list(prices.shape)} of {prices.dtype}"
        return None, [f"prices has {got}, expected [{steps}] integers"]
    if steps and prices.min() < 0:
        i = int(prices.argmin())
        return None, [f"the price of row {first + i} is negative: {prices[i]}"]
    total_price = sum(prices.tolist())
    if total_price >= TOTAL_LIMIT:
        return None, [f"the prices sum to {total_price}, not below {TOTAL_LIMIT}"]

    before = np.arange(tokens) < np.arange(first, tokens)[:, None]
    surplus = np.where(before, fixed[first:] - prices[:, None], 0)
    best = np.cumsum(surplus, axis=0).max(axis=0, initial=0)
    own = int(fixed.diagonal()[schedule.prefill :].sum())
    return own + (schedule.budget - 1) * total_price + sum(best.tolist()), []
