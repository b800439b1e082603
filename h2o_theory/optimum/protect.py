"""The optimum among schedules that never evict the first tokens or the recent ones.

A protected entry costs a slot and earns its mass whatever is decided, so it can be taken out of
the problem. What is left is the unprotected problem again, on other rows and a smaller budget.
"""

from dataclasses import dataclass, replace

import numpy as np

from h2o_theory.annotations import IntArray
from h2o_theory.errors import BadArgument, BadBudget
from h2o_theory.optimum.arguments import require_at_least, require_integer
from h2o_theory.optimum.fixed_point import require_fixed_point
from h2o_theory.optimum.schedule import Schedule, keep_slots_full

__all__ = ["Protected", "protect"]


@dataclass(frozen=True, eq=False)
class Protected:
    """A problem with protected entries, as an equivalent one without (read-only).

    Attributes
    ----------
    fixed : numpy.ndarray [T, T] int64
        Rows of the equivalent problem, for :func:`optimum_curve` and the others.
    n_sink, n_recent : int
    """

    fixed: np.ndarray
    n_sink: int
    n_recent: int

    @property
    def reserved(self) -> int:
        """Slots that protected entries take beside the query's own."""
        return self.n_sink + self.n_recent - 1

    def reduced_budget(self, budget: int) -> int:
        """The budget of the equivalent problem, ``budget - reserved``.

        Raises
        ------
        BadBudget
            The protected entries do not fit.
        """
        budget = require_integer(budget, "budget")
        if not self.reserved < budget <= len(self.fixed):
            raise BadBudget(
                f"budget must be {self.reserved + 1} to {len(self.fixed)} tokens: "
                "above n_sink + n_recent and up to all",
                got=budget,
            )
        return budget - self.reserved

    def original(self, schedule: Schedule) -> Schedule:
        """A schedule of the equivalent problem as one of the problem that was given.

        Same value, same rows, the budget that counts all entries. Its prices are those of the
        equivalent problem, where :func:`check_certificate` proves it optimal; the original rows
        without protection may allow more.

        Parameters
        ----------
        schedule : Schedule

        Returns
        -------
        Schedule
        """
        tokens, delay = len(self.fixed), self.n_recent - 1
        planned = np.full(tokens, tokens - 1, dtype=np.int64)
        kept = slice(self.n_sink, tokens - delay)
        planned[kept] = schedule.evicted_at[self.n_sink + delay :]
        budget = schedule.budget + self.reserved
        evicted_at = keep_slots_full(planned, budget, schedule.prefill)
        evicted_at.flags.writeable = False
        return replace(schedule, budget=budget, evicted_at=evicted_at)


def protect(fixed: IntArray, *, n_sink: int = 0, n_recent: int = 1) -> Protected:
    """Reduce the optimum with protected sinks and a protected recent window to the plain optimum.

    Row t sees for certain the keys ``P_t = {j < n_sink} + {j > t - n_recent}``, as every policy
    with ``n_sink`` and ``n_recent`` does. A key j between them can be evicted from row
    ``j + n_recent`` on, so it takes the place of key ``j + n_recent - 1``::

        fixed'[t, t] = sum of fixed[t, j] over P_t,
        fixed'[t, j + n_recent - 1] = fixed[t, j]      for n_sink <= j <= t - n_recent,

    and all else is zero. With ``k' = k - n_sink - n_recent + 1`` the optima are equal, budget by
    budget, at every prefill: while P_t is smaller than n_sink + n_recent nothing else exists.
    (The delayed arrivals keep the matrix a network matrix, so the optimum stays exact.)

    Parameters
    ----------
    fixed : numpy.ndarray [T, T] int64
        Rows in fixed point.
    n_sink : int
        First positions never evicted, at least 0.
    n_recent : int
        Most recent positions never evicted, the query's own included, at least 1; 1 protects
        nothing that is not visible anyway.

    Returns
    -------
    Protected
        For example ``p = protect(fixed, n_recent=16)``, then
        ``p.original(optimum_at(p.fixed, p.reduced_budget(k)))``.

    Raises
    ------
    BadArgument
        A number is not an integer, too small, or ``n_sink + n_recent`` is above T.
    InvalidAttention
        ``fixed`` is not causal, non-negative fixed point.

    Notes
    -----
    O(T^2) time, 8 T^2 bytes.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.1, 0.7, 0.2, 0], [0.6, 0.1, 0.1, 0.2]])
    >>> from h2o_theory.optimum import optimum_at, to_fixed_point
    >>> kept = protect(to_fixed_point(rows), n_sink=1, n_recent=1)
    >>> schedule = kept.original(optimum_at(kept.fixed, kept.reduced_budget(3)))
    >>> round(schedule.value / 2**36, 6)
    3.9
    """
    fixed = require_fixed_point(fixed)
    tokens = len(fixed)
    n_sink = require_at_least(n_sink, 0, "n_sink")
    n_recent = require_at_least(n_recent, 1, "n_recent")
    if n_sink + n_recent > tokens:
        raise BadArgument(
            f"n_sink + n_recent must be at most {tokens}: there are no more tokens to protect",
            got=n_sink + n_recent,
        )
    reduced = np.zeros_like(fixed)
    for t in range(tokens):
        window = max(t - n_recent + 1, 0)
        sinks = min(n_sink, window)
        reduced[t, t] = fixed[t, :sinks].sum() + fixed[t, window : t + 1].sum()
        reduced[t, sinks + n_recent - 1 : window + n_recent - 1] = fixed[t, sinks:window]
    reduced.flags.writeable = False
    return Protected(reduced, n_sink, n_recent)
