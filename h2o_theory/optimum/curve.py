"""The exact offline optimum for every budget at once, with schedules and prices for some."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from h2o_theory.annotations import FloatArray, IntArray
from h2o_theory.optimum.arguments import require_budget, require_prefill
from h2o_theory.optimum.fixed_point import FRACTION_BITS, require_fixed_point
from h2o_theory.optimum.path import augment, build_network, empty_flow
from h2o_theory.optimum.schedule import Schedule, first_shared_row, keep_slots_full

__all__ = ["BudgetCurve", "optimum_curve"]


@dataclass(frozen=True, eq=False)
class BudgetCurve:
    """The optimum J_OPT(k) of one kv_head for k = 1 .. max_budget (read-only).

    Attributes
    ----------
    values : numpy.ndarray [max_budget] int64
        ``values[k-1]`` = J_OPT(k), the retained mass summed over the scored rows, in units of
        ``2**-fraction_bits``. Non-decreasing and concave in k.
    schedules : mapping of int to Schedule
        An optimal schedule for each budget that was asked for.
    tokens : int
        T.
    prefill : int
        Rows ``0 .. prefill-1`` are not scored.
    fraction_bits : int
    """

    values: np.ndarray
    schedules: Mapping[int, Schedule]
    tokens: int
    prefill: int
    fraction_bits: int = FRACTION_BITS

    @property
    def n_scored(self) -> int:
        """Number of scored rows, ``T - prefill``."""
        return self.tokens - self.prefill

    @property
    def gains(self) -> IntArray:
        """int64 [max_budget - 1]: what budget k+1 adds to budget k, never increasing."""
        return np.diff(self.values)

    @property
    def retained_mass(self) -> FloatArray:
        """float64 [max_budget]: mean retained mass of a scored row; NaN when no row is scored."""
        if self.n_scored == 0:
            return np.full(self.values.size, np.nan)
        return self.values / 2.0**self.fraction_bits / self.n_scored


def optimum_curve(
    fixed: IntArray, max_budget: int, *, budgets: Iterable[int] = (), prefill: int = 0
) -> BudgetCurve:
    """Largest retained mass of any eviction schedule, exactly, for every budget up to a largest.

    Over all retained sets with ``R_t`` a subset of ``S_t = R_{t-1} + {t}`` and ``|R_t| <= k-1``::

        J_OPT(k) = max  sum_{t >= prefill}  [ a[t,t] + sum_{j in R_{t-1}} a[t,j] ]

    With ``prefill = p >= 1`` all tokens ``j < p`` may be in ``R_{p-1}``. An evicted entry never
    returns. The schedules of prefill 0 and 1 are the same; prefill 1 does not score row 0.

    Theorem. A schedule is one interval per token, all intervals of a token starting at the same
    row. The matrix of (token or row) by interval has the directed paths of a caterpillar tree as
    columns: a path with an edge per row, and a pendant edge per token. It is a network matrix,
    hence totally unimodular, so the linear relaxation has integral optima and is a min-cost flow
    of k-1 units. (It is not a consecutive-ones matrix.) Successive shortest paths then yields the
    optimum for 1, 2, ... units in turn, and the gains never increase.

    Parameters
    ----------
    fixed : numpy.ndarray [T, T] int64
        Rows in fixed point, as :func:`to_fixed_point` returns them.
    max_budget : int
        Largest budget k, 1 .. T. A budget counts every KV entry a query sees, its own included:
        k = 1 sees only itself, k = T is the full cache.
    budgets : iterable of int
        Budgets, none above ``max_budget``, for which a schedule and its prices are returned.
    prefill : int
        p, 0 .. T.

    Returns
    -------
    BudgetCurve

    Raises
    ------
    BadBudget
        A budget below 1, above T, or above ``max_budget``.
    OutOfRange
        ``prefill`` is not in 0 .. T.
    BadArgument, InvalidAttention
        ``fixed`` is not causal, non-negative fixed point, or a number is not an integer.

    Notes
    -----
    Exact for the rounded rows; against the unrounded ones off by at most ``T * k * 2**-37`` in
    the sum. O(K T^2) time for K = ``max_budget``, with early stop where more budget adds nothing;
    about 4 T^2 bytes beside ``fixed``. Releases the GIL, so heads may run on threads.

    Optimal schedules need not be unique: compare values, not sets.

    Source: successive shortest paths with potentials (Ahuja, Magnanti, Orlin, "Network Flows",
    1993, sec. 9.7); network matrices (Tutte; Schrijver, "Theory of Linear and Integer
    Programming", 1986, sec. 19.3). Departures: one node per row in place of one per token and
    row, no arc from a token back to an idle slot (as attention is never negative, none is
    needed), and a search that stops at the sink.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.1, 0.7, 0.2, 0], [0.6, 0.1, 0.1, 0.2]])
    >>> from h2o_theory.optimum import to_fixed_point
    >>> optimum_curve(to_fixed_point(rows), 4).retained_mass.round(6)
    array([0.475, 0.8  , 0.975, 1.   ])
    """
    fixed = require_fixed_point(fixed)
    tokens = fixed.shape[0]
    prefill = require_prefill(prefill, tokens)
    max_budget = require_budget(max_budget, tokens, "max_budget")
    asked = sorted({require_budget(k, max_budget, "budgets") for k in budgets})

    own = int(fixed.diagonal()[prefill:].sum())
    gains = np.zeros(max_budget - 1, dtype=np.int64)
    planned = _plans(fixed, gains, asked, first_shared_row(prefill))
    values = own + np.concatenate([[0], np.cumsum(gains)])
    values.flags.writeable = False
    schedules = {k: _schedule(k, prefill, values, *planned[k]) for k in asked}
    return BudgetCurve(values, MappingProxyType(schedules), tokens, prefill)


def _plans(
    fixed: IntArray, gains: IntArray, asked: Collection[int], first: int
) -> dict[int, tuple[IntArray, IntArray]]:
    """Solve into ``gains``; return ``{budget: (last row that has to see each key, prices)}``."""
    tokens = fixed.shape[0]
    if first >= tokens:
        nothing = np.zeros(0, dtype=np.int64)
        return {k: (np.full(tokens, tokens - 1), nothing) for k in asked}
    network = build_network(fixed, first)
    flow = empty_flow(fixed, first, network)
    plans = {}
    sent = 0
    for units in [k - 1 for k in asked] + [gains.size]:
        # After an early stop the next call finds again that nothing is to be gained.
        sent += augment(network, flow, gains[sent:units])
        planned = np.append(first - 1 + flow.ends, tokens - 1)
        plans[units + 1] = planned, np.diff(flow.potential)
    return plans


def _schedule(
    budget: int, prefill: int, values: IntArray, planned: IntArray, prices: IntArray
) -> Schedule:
    """Freeze one plan into a schedule."""
    evicted_at = keep_slots_full(planned, budget, prefill)
    evicted_at.flags.writeable = False
    prices.flags.writeable = False
    value = int(values[budget - 1])
    return Schedule(budget, prefill, value, evicted_at, prices, value, "successive shortest paths")
