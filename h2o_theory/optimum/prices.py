"""Near-optimal prices of a slot, in single precision: where one budget and long traces start.

At prices ``lam`` each key alone decides how long it pays to stay. Its net future value before
step i is

    w_i(j) = max(0, a[i, j] - lam_i + w_{i+1}(j)),        w_N(j) = 0,

so one pass over the rows, last to first, finds for every key the first step before which staying
pays no more (its end), and the sum of the w at the arrivals gives the dual bound
``c * sum(lam) + sum_j w(j)`` of c = k-1 retained slots. The rows are read once and in order, which
is all the cost: 0.7 ms at T = 2048.

Several heads may draw on one pool of slots: rows are [H, T, T] throughout, and one head is H = 1.

Rounding to float32 can make prices worse but never wrong: any prices give a valid bound, and the
bound that is reported is evaluated again in integers.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from h2o_theory.annotations import IntArray

__all__ = ["Pricing", "constant_price", "descend", "in_units", "new_pricing", "stay"]

# A constant price is good enough when the keys present number the slots up to this share.
_NEAR = 0.02
_SAME_PRICE = 1e-4


class Pricing(NamedTuple):
    """Prices and what the keys do at them; updated in place.

    Steps i = 0 .. N-1 stand for the rows ``first + i``. prices [N]; worth [H, T-1], w at the
    arrival; ends [H, T-1], a step, N for those that stay to the last row; occupied [N], keys of
    all heads present; best [N], the prices of the smallest bound so far; record [2], that bound
    and the sum of the mean squared imbalances so far.
    """

    prices: np.ndarray
    worth: np.ndarray
    ends: np.ndarray
    occupied: np.ndarray
    best: np.ndarray
    record: np.ndarray


def new_pricing(rows: NDArray[np.float32], first: int) -> Pricing:
    """All prices zero, nothing decided."""
    heads, tokens, _ = rows.shape
    steps = tokens - first
    return Pricing(
        np.zeros(steps, dtype=np.float32),
        np.zeros((heads, tokens - 1), dtype=np.float32),
        np.zeros((heads, tokens - 1), dtype=np.int32),
        np.zeros(steps, dtype=np.int64),
        np.zeros(steps, dtype=np.float32),
        np.array([np.inf, 0.0]),
    )


def in_units(prices: NDArray[np.floating], unit: float, mass: int) -> IntArray:
    """Prices as int64 multiples of ``1 / unit`` that sum to ``mass`` at most.

    Prices that sum to more bound nothing that the whole mass does not bound better; the limit
    keeps all sums of the solver below 2**60.
    """
    # Rounded down: prices a little too low are as valid as any, and their sum stays in bounds.
    scaled = prices.astype(np.float64) * unit
    total = scaled.sum()
    if total > mass:
        scaled *= mass / total
    return np.floor(scaled).astype(np.int64)


@njit(cache=True, nogil=True, error_model="numpy")
def _step_back(row, price, step, worth, ends):
    """One step of the recursion for all keys of a row. No branch, so it vectorises."""
    for j in range(row.size):
        value = row[j] - price + worth[j]
        pays = value > np.float32(0)
        worth[j] = value if pays else np.float32(0)
        ends[j] = ends[j] if pays else step


@njit(cache=True, nogil=True, error_model="numpy")
def stay(rows, first, pricing):
    """Let every key stay while it pays; return the mean number of keys present. O(H T^2) time."""
    prices, worth, ends, occupied, _, _ = pricing
    steps = prices.size
    # ``ends`` is written at each step at which a key would rather leave; as steps run backwards,
    # what is left is the first of them.
    worth[:] = 0
    ends[:] = steps
    occupied[:] = 0
    for h in range(rows.shape[0]):
        for i in range(steps - 1, -1, -1):
            older = first + i
            row = rows[h, older, :older]
            _step_back(row, prices[i], np.int32(i), worth[h, :older], ends[h, :older])
        for j in range(ends.shape[1]):
            occupied[max(j + 1 - first, 0)] += 1
            if ends[h, j] < steps:
                occupied[ends[h, j]] -= 1
    total = occupied[0]
    for i in range(1, steps):
        occupied[i] += occupied[i - 1]
        total += occupied[i]
    return total / steps


@njit(cache=True, nogil=True, error_model="numpy")
def constant_price(rows, first, slots, mass, pricing):
    """Set all prices to one at which about ``slots`` keys are present; return the scale of prices.

    ``mass`` is what the scored rows give to older keys. At the price ``mass / (N * slots)`` no
    more than ``slots`` keys are present on average, as those that stay collect what they pay. From
    there the price is halved until more stay, then bisected on a log scale. If no more than
    ``slots`` stay when it costs nothing, all prices are zero.
    """
    prices = pricing.prices
    # ``high``: a price at which too few stay; ``low``: one at which too many do, 0 if unknown.
    high = mass / (prices.size * slots)
    low = 0.0
    prices[:] = 0
    if stay(rows, first, pricing) <= slots:
        return high
    price = high / 2
    while True:
        prices[:] = price
        present = stay(rows, first, pricing)
        if present > slots:
            low = price
        else:
            high = price
        if abs(present - slots) <= _NEAR * slots or high <= low * (1 + _SAME_PRICE):
            return price
        price = np.sqrt(low * high) if low > 0 else high / 2


@njit(cache=True, nogil=True, error_model="numpy")
def descend(rows, first, slots, scale, pricing):
    """Evaluate the bound at the current prices, then take one projected subgradient step.

    The bound is convex in the prices with slope ``slots - occupied[i]`` at step i, so a price
    rises where too many keys stay. With g the imbalance ``occupied - slots``::

        lam <- max(0, lam + scale * g / sqrt(slots + sum of mean(g^2) over the steps so far))

    The step size adapts to how rough the problem is (AdaGrad with one size for all; Duchi, Hazan,
    Singer 2011). A size for each step i, or a fixed decay, gives bounds as small, but leaves
    excess and deficit farther apart for the repair, or fails where a few rows hold large prices.
    """
    prices, worth, _, occupied, best, record = pricing
    stay(rows, first, pricing)
    bound, roughness = 0.0, 0.0
    for i in range(prices.size):
        bound += slots * np.float64(prices[i])
        roughness += np.float64(occupied[i] - slots) ** 2
    for h in range(worth.shape[0]):
        for j in range(worth.shape[1]):
            bound += worth[h, j]
    # Subgradient steps do not fall every time, so the best prices are kept beside the last.
    if bound < record[0]:
        record[0] = bound
        best[:] = prices
    record[1] += roughness / prices.size
    rate = scale / np.sqrt(slots + record[1])
    for i in range(prices.size):
        prices[i] = max(prices[i] + rate * (occupied[i] - slots), 0.0)
