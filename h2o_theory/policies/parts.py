"""How a policy divides its budget: sinks, entries held by score, and a recent window."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from h2o_theory.errors import BadBudget

__all__ = ["Parts", "heavy_part", "part_of", "resolve_parts", "sinks_within", "split_parts"]


@dataclass(frozen=True)
class Parts:
    """How a budget is divided; the three parts sum to it.

    Attributes
    ----------
    n_sink : int
        The first positions of the sequence, never evicted.
    n_heavy : int
        Entries held for their score.
    n_recent : int
        The most recent positions, the query's own included, never evicted while in the window.
    """

    n_sink: int
    n_heavy: int
    n_recent: int


def part_of(part: float, budget: int) -> int:
    """A share of a budget, rounded down exactly.

    Examples
    --------
    >>> part_of(0.29, 100)  # 0.29 * 100 is 28.999999999999996
    29
    """
    return int(Fraction(str(part)) * budget)


def heavy_part(recent: float, budget: int) -> int:
    """The share ``1 - recent`` of a budget, rounded down exactly; one entry is always recent.

    Examples
    --------
    >>> heavy_part(0.5, 7), heavy_part(0, 7)
    (3, 6)
    """
    return min(int((1 - Fraction(str(recent))) * budget), budget - 1)


def resolve_parts(policy: Any, budget: int) -> Parts:
    """The :class:`Parts` of a budget, as ``policy.parts`` gives them.

    Raises
    ------
    BadBudget
        If a part is negative, they do not sum to the budget, or nothing but sinks is left.
    """
    parts = policy.parts(budget)
    numbers = (parts.n_sink, parts.n_heavy, parts.n_recent)
    if min(numbers) < 0 or sum(numbers) != budget or parts.n_sink == budget:
        raise BadBudget(
            "the policy's parts do not make up the budget",
            where=policy.name,
            got="n_sink={}, n_heavy={}, n_recent={}".format(*numbers),
            expected=f"parts of at least 0 that sum to {budget}, with fewer sinks than that",
        )
    return parts


def sinks_within(policy: Any, n_sink: int, budget: int, *, default: int) -> int:
    """The sinks that fit a budget: a default shrinks to ``budget - 1``, an explicit wish must fit.

    Raises
    ------
    BadBudget
        If more sinks were asked for than leave room for the query's own entry.
    """
    if n_sink <= budget - 1:
        return n_sink
    if n_sink == default:
        return budget - 1
    raise BadBudget(
        "the budget is smaller than the policy's protected parts",
        where=f"{policy.name}:n_sink",
        got=f"n_sink={n_sink} with a budget of {budget}",
        expected="n_sink of at most budget - 1",
    )


def split_parts(policy: Any, budget: int) -> Parts:
    """Sinks, heavy entries and a window, by ``n_sink``, ``recent``, ``n_recent`` and ``n_heavy``.

    The last two, in tokens, take the place of the share; one of them gives the other.

    Raises
    ------
    BadBudget
        If the parts asked for do not fit the budget.
    """
    n_sink = sinks_within(policy, policy.n_sink, budget, default=0)
    rest, n_heavy, n_recent = budget - n_sink, policy.n_heavy, policy.n_recent
    if n_recent is None and n_heavy is None:
        n_heavy = heavy_part(policy.recent, rest)
    if (n_recent or 0) + (n_heavy or 0) > rest:
        raise BadBudget(
            "the budget is smaller than the policy's protected parts",
            where=policy.name,
            got=f"n_sink={n_sink}, n_heavy={n_heavy}, n_recent={n_recent} with a budget "
            f"of {budget}",
            expected="parts of at most the budget together",
        )
    n_recent = rest - n_heavy if n_recent is None else n_recent
    return Parts(n_sink, rest - n_recent if n_heavy is None else n_heavy, n_recent)
