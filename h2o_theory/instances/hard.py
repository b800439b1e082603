"""Rows on which eviction policies fail: what no online policy can do, and a trap for each of five.

In all of them full attention is cheap to serve: the optimum retains every row or nearly so.
"""

from typing import NamedTuple

import numpy as np

from h2o_theory.annotations import FloatArray
from h2o_theory.errors import BadArgument
from h2o_theory.instances.families import require_generator
from h2o_theory.optimum.arguments import require_at_least, require_budget

__all__ = ["OnlineLimit", "TRAPS", "lookalike_rows", "online_limit", "surprise_rows", "trap_rows"]


class OnlineLimit(NamedTuple):
    """The ratio no online policy exceeds on :func:`lookalike_rows`, and the rows that show it."""

    ratio: float
    rows: int


def surprise_rows(tokens: int, rng: np.random.Generator) -> FloatArray:
    """Rows of no attention at all, then one that puts all mass on a random older token.

    Theorem. No online policy, randomised or not, retains more than ``(k-1)/(T-1)`` of it in
    expectation, while the optimum retains all: until the last row all tokens look alike. (Rows
    here need not sum to one. A policy that keeps a random k-1 of the T-1 tokens attains this.)

    Parameters
    ----------
    tokens : int
        T, at least 2.
    rng : numpy.random.Generator
        Draws the token.

    Returns
    -------
    numpy.ndarray [T, T] float64
    """
    tokens = require_at_least(tokens, 2, "tokens")
    require_generator(rng)
    rows = np.zeros((tokens, tokens))
    rows[-1, rng.integers(0, tokens - 1)] = 1.0
    return rows


def online_limit(tokens: int, budget: int) -> OnlineLimit:
    """The best any online policy can expect on :func:`lookalike_rows` of this length and budget.

    With n rows alike, a policy holds the token that matters with probability at most (k-1)/n::

        ratio <= min over n of  [n + (T - n) * min(1, (k-1)/n)] / T   (about 2 sqrt(k/T)).

    So no constant ratio is possible for rows that sum to one.

    Parameters
    ----------
    tokens : int
        T, at least 2.
    budget : int
        k, 1 .. T.

    Returns
    -------
    OnlineLimit
        The ratio and the n that attains it.

    Examples
    --------
    >>> online_limit(100, 10)
    OnlineLimit(ratio=0.51, rows=30)
    """
    tokens = require_at_least(tokens, 2, "tokens")
    budget = require_budget(budget, tokens, "budget")
    alike = np.arange(1, tokens)
    ratio = (alike + (tokens - alike) * np.minimum(1.0, (budget - 1) / alike)) / tokens
    best = int(ratio.argmin())
    return OnlineLimit(float(ratio[best]), int(alike[best]))


def lookalike_rows(tokens: int, budget: int, rng: np.random.Generator) -> FloatArray:
    """Rows that attend only to themselves, then rows that attend only to one of those tokens.

    The number of rows alike is that of :func:`online_limit`, and the token is drawn uniformly from
    them. The optimum retains all T rows with k = 2; by Yao's principle no online policy expects
    more than the limit.

    Parameters
    ----------
    tokens : int
        T, at least 2.
    budget : int
        k, 1 .. T.
    rng : numpy.random.Generator

    Returns
    -------
    numpy.ndarray [T, T] float64
        Each row sums to one.
    """
    limit = online_limit(tokens, budget)
    require_generator(rng)
    rows = np.eye(tokens)
    _only(rows, limit.rows, int(rng.integers(0, limit.rows)))
    return rows


def trap_rows(policy: str, tokens: int, budget: int) -> FloatArray:
    """Rows on which the named policy retains almost nothing of what the optimum retains.

    =========  ==================================================================================
    policy     what happens
    =========  ==================================================================================
    recent     all rows attend to token 0: out of any window after k rows
    lru        token 0 is used at every row for a while, then not for k rows, then always
    lfu        k tokens are used often; then a new one, always, but at first it has one access
    h2o        k/2 tokens collect attention; a new one, used a little at every row, leaves the
               recent window with less than they have, and is then all that is wanted
    belady     k tokens are about to be used, each a little; token 0 later, but always
    =========  ==================================================================================

    Each policy loses token 0, or the new one, and with it all rows to come: its ratio to the
    optimum is O(k/T). Every trap is harmless for some of the others.

    Parameters
    ----------
    policy : str
        One of ``TRAPS``.
    tokens : int
        T, above ``6 k``.
    budget : int
        k, at least 2: the budget the trap is set for.

    Returns
    -------
    numpy.ndarray [T, T] float64
        Each row sums to one.

    Raises
    ------
    BadArgument
        There is no such trap, or T is too small for the budget.

    Examples
    --------
    >>> trap_rows("recent", 50, 4)[-1].argmax()
    np.int64(0)
    """
    if policy not in TRAPS:
        raise BadArgument("policy must be one with a trap: " + ", ".join(TRAPS), got=repr(policy))
    tokens = require_at_least(tokens, 2, "tokens")
    budget = require_budget(budget, tokens, "budget")
    if budget < 2 or tokens <= 6 * budget:
        raise BadArgument(
            "a trap needs a budget of at least 2 and more than 6 times as many tokens",
            got=f"{tokens} tokens, budget {budget}",
        )
    rows = np.eye(tokens)
    TRAPS[policy](rows, budget)
    return rows


def _trap_recent(rows: FloatArray, budget: int) -> None:
    """Token 0 from the start; the budget does not matter."""
    _only(rows, 1, 0)


def _trap_lru(rows: FloatArray, budget: int) -> None:
    """Token 0 for 2k rows, k rows of their own, token 0 again."""
    _only(rows, 1, 0)
    flush = slice(2 * budget, 3 * budget + 1)
    rows[flush] = np.eye(len(rows))[flush]


def _trap_lfu(rows: FloatArray, budget: int) -> None:
    """The first k tokens alike for 2k rows, then the next token always."""
    _evenly(rows, budget, 3 * budget, slice(0, budget))
    _only(rows, 3 * budget + 1, 3 * budget)


def _trap_h2o(rows: FloatArray, budget: int) -> None:
    """Half of k tokens alike for 2k rows; then a new one, barely used for k rows, then always."""
    heavy = budget // 2
    new = heavy + 2 * budget
    _evenly(rows, heavy, new, slice(0, heavy))
    barely = np.arange(new + 1, new + budget + 1)
    rows[barely, barely] = 1.0 - 1.0 / budget
    rows[barely, new] = 1.0 / budget
    _only(rows, new + budget + 1, new)


def _trap_belady(rows: FloatArray, budget: int) -> None:
    """All tokens but the first alike until the cache has been full, then the first always."""
    for t in range(1, budget + 1):
        _evenly(rows, t, t + 1, slice(1, t + 1))
    _only(rows, budget + 1, 0)


TRAPS = {
    "recent": _trap_recent,
    "lru": _trap_lru,
    "lfu": _trap_lfu,
    "h2o": _trap_h2o,
    "belady": _trap_belady,
}


def _only(rows: FloatArray, start: int, key: int) -> None:
    """From row ``start`` on all mass goes to one key."""
    rows[start:] = 0.0
    rows[start:, key] = 1.0


def _evenly(rows: FloatArray, start: int, end: int, keys: slice) -> None:
    """Rows ``start .. end-1`` share their mass evenly among some keys."""
    rows[start:end] = 0.0
    rows[start:end, keys] = 1.0 / (keys.stop - keys.start)
