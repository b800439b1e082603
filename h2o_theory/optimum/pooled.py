"""What heads that share one pool of slots, moving them at will, could retain at most."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from h2o_theory.annotations import IntArray
from h2o_theory.errors import BadArgument, BadBudget
from h2o_theory.optimum.arguments import (
    require_at_least,
    require_integer,
    require_prefill,
)
from h2o_theory.optimum.deadline import Deadline
from h2o_theory.optimum.fixed_point import FRACTION_BITS, TOTAL_LIMIT, UNITS
from h2o_theory.optimum.prices import constant_price, descend, in_units, new_pricing
from h2o_theory.optimum.schedule import first_shared_row
from h2o_theory.optimum.sums import own_mass, row_masses, single_precision, surplus, usable

__all__ = ["PooledBound", "pooled_bound"]


@dataclass(frozen=True, eq=False)
class PooledBound:
    """An upper bound on the retained mass of heads with a common, time-varying budget.

    Attributes
    ----------
    upper : int
        No schedules of the heads that see ``total`` entries together in each row retain more,
        summed over heads and scored rows; in units of ``2**-fraction_bits``.
    prices : numpy.ndarray [T - max(prefill, 1)] int64
        One price of a slot in each row, the same for all heads; read-only.
    total : int
    status : str
        ``"finished"`` or ``"time limit"``.
    steps : int
        Subgradient steps taken.
    n_scored : int
        Scored rows of all heads together.
    fraction_bits : int
    """

    upper: int
    prices: np.ndarray
    total: int
    status: str
    steps: int
    n_scored: int
    fraction_bits: int = FRACTION_BITS

    @property
    def retained_mass(self) -> float:
        """The bound as mean retained mass of a scored row; NaN if there is none."""
        if self.n_scored == 0:
            return float("nan")
        return self.upper / 2.0**self.fraction_bits / self.n_scored


def pooled_bound(
    heads: Sequence[ArrayLike] | NDArray[Any],
    total: int,
    *,
    prefill: int = 0,
    steps: int = 60,
    time_limit: float | None = None,
) -> PooledBound:
    """Bound what any division of a total budget over heads retains, also one that changes by row.

    The slots of all heads form one pool: ``sum_h |S_t^h| <= total`` in each scored row. With one
    price vector for all heads, c = total - H, and V and y as in :func:`check_certificate`::

        J_pool <= sum_h own_h + c * y_N + sum_h sum_j max_{q >= arrival_j} [V_hj(q) - paid_j(q)]

    by weak duality. Equality holds at optimal prices (the tokens of all heads hang on the same
    path, so the matrix is still a network matrix), and a few subgradient steps come close.

    Parameters
    ----------
    heads : sequence of numpy.ndarray [T, T], or one array [H, T, T]
        Rows of each head in fixed point (int64) or as floats, all of one T.
    total : int
        KV entries of all heads together, H .. H T.
    prefill : int
        p, 0 .. T, the same for all heads.
    steps : int
        Subgradient steps, at least 0.
    time_limit : float, optional
        Seconds after which no further step is begun; the bound is valid whenever it stops.

    Returns
    -------
    PooledBound
        At least the value of every :class:`Split` of the same total and of the same rows: curves
        of rows that were not rounded to float32 can reach a little more than these do.

    Raises
    ------
    BadBudget
        ``total`` is below one entry for each head or above all of them.
    OutOfRange
        ``prefill`` is not in 0 .. T.
    BadArgument, InvalidAttention
        No heads, heads of different lengths, rows that are no attention, an unusable number.

    Notes
    -----
    O(H T^2) time for each of about 10 + ``steps`` passes; 4 H T^2 bytes for a copy in single
    precision unless ``heads`` is one float32 array.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.1, 0.7, 0.2, 0], [0.6, 0.1, 0.1, 0.2]])
    >>> round(pooled_bound([rows, rows], 5).retained_mass, 3)
    0.888
    """
    end = Deadline(time_limit)
    rows = [usable(head, f"heads[{h}]") for h, head in enumerate(heads)]
    lengths = {len(head) for head in rows}
    if len(lengths) != 1:
        raise BadArgument(
            "heads must be matrices [T, T] of one length",
            got=f"lengths {sorted(lengths)}" if rows else "no heads",
        )
    tokens = lengths.pop()
    prefill = require_prefill(prefill, tokens)
    total = _usable_total(total, len(rows), tokens)
    steps = require_at_least(steps, 0, "steps")

    first = first_shared_row(prefill)
    masses = sum(row_masses(head, first) for head in rows)
    prices, taken = _prices(heads, rows, total - len(rows), first, masses, steps, end)
    prices.flags.writeable = False
    upper = (total - len(rows)) * sum(prices.tolist())
    upper += sum(own_mass(head, prefill) + surplus(head, first, prices) for head in rows)
    status = "finished" if taken == steps else "time limit"
    return PooledBound(upper, prices, total, status, taken, len(rows) * (tokens - prefill))


def _usable_total(total: int, heads: int, tokens: int) -> int:
    """A total budget in H .. H T."""
    total = require_integer(total, "total")
    if not heads <= total <= heads * tokens:
        raise BadBudget(
            f"total must be {heads} to {heads * tokens}: one entry for each head up to all of them",
            got=total,
        )
    return total


def _prices(
    heads: Sequence[ArrayLike] | NDArray[Any],
    rows: list[NDArray[Any]],
    slots: int,
    first: int,
    masses: IntArray,
    steps: int,
    end: Deadline,
) -> tuple[IntArray, int]:
    """Near-optimal prices int64 [N] and the number of steps taken."""
    mass = int(masses.sum())
    if slots == 0 or mass == 0:
        return masses, steps
    single = heads
    if not isinstance(heads, np.ndarray) or heads.dtype != np.float32:
        single = np.empty((len(rows), *rows[0].shape), dtype=np.float32)
        for head, out in zip(rows, single, strict=True):
            single_precision(head, out)
    pricing = new_pricing(single, first)
    scale = constant_price(single, first, slots, mass / UNITS, pricing)
    taken = 0
    while True:
        descend(single, first, slots, scale, pricing)
        if taken == steps or end.passed:
            return in_units(pricing.best, UNITS, min(mass, TOTAL_LIMIT - 1)), taken
        taken += 1
