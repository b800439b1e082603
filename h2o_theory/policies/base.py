"""What a policy is: a rule that scores the visible entries; the engine does everything else."""

import re
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numba import njit

from h2o_theory.errors import BadArgument, BadBudget
from h2o_theory.policies.tensors import Tensors

__all__ = [
    "GROUP_REDUCTIONS",
    "ROWS",
    "Context",
    "Parts",
    "Policy",
    "heavy_part",
    "one_of",
    "part_of",
    "checked_parts",
    "share",
    "sinks_within",
    "whole_number",
]

ROWS = ("renormalised", "raw")
GROUP_REDUCTIONS = ("mean", "sum", "max", "first")


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


@dataclass(frozen=True)
class Context:
    """What one replay of one kv_head tells a policy before it starts.

    Attributes
    ----------
    budget, tokens, prefill : int
        k, T and the number of unscored prompt rows.
    layer, kv_head, seed : int
        They determine the random stream, so that no two heads draw the same numbers.
    tensors : Tensors or None
        Queries, keys and values of the kv_head, as far as the policy's ``needs`` names them.
    """

    budget: int
    tokens: int
    prefill: int = 0
    layer: int = 0
    kv_head: int = 0
    seed: int = 0
    tensors: Tensors | None = field(default=None, compare=False, repr=False)


@njit(cache=True, nogil=True)
def observe_nothing(t, n, position, row, score, per_slot, memory, settings):
    """The observation of a policy that does not look at attention."""


@njit(cache=True, nogil=True)
def rate_nothing(t, b, n, position, score, per_slot, memory, table, settings):
    """The rating of a policy whose score is already up to date after the observation."""


@dataclass(frozen=True)
class Policy:
    r"""Base of all shipped policies: frozen parameters and two compiled functions.

    At every step the engine appends the newcomer with score 0, forms the visible row, calls
    ``observe``, and, while the cache is full, calls ``rate`` and evicts

    .. math:: u_t = \arg\min_{j \in S_t \setminus P_t} \text{score}(j),

    the oldest among equals, where P_t holds the sinks and the recent window. Both functions see
    only the entries of S_t, in no particular order: entry i is token ``position[i]``.

    ``observe(t, n, position, row, score, per_slot, memory, settings)``
        Row t restricted to S_t is ``row[:n]``, reduced over the group; update ``score[:n]``,
        ``per_slot[:n]`` (kept with the entry: its :meth:`features`, then zeros at first) and
        ``memory`` (kept for the head).
    ``rate(t, b, n, position, score, per_slot, memory, table, settings)``
        Bring ``score[:n]`` up to date for the choice of a victim. ``table[b]`` is row t of
        :meth:`table`; it is empty for online policies.

    Subclasses are frozen dataclasses whose fields are the parameters, with defaults.
    """

    name: ClassVar[str] = ""
    kind: ClassVar[str] = "online"
    """``online`` sees up to step t, ``clairvoyant`` the whole trace, ``reference`` is no cache."""
    needs: ClassVar[str] = "rows"
    """What the rule looks at: ``positions``, or any of ``rows queries unrotated keys values``."""
    source: ClassVar[str] = ""
    observe: ClassVar = observe_nothing
    rate: ClassVar = rate_nothing

    def parts(self, budget):
        """The resolved :class:`Parts` of a budget; all of it is held by score unless overridden."""
        return Parts(0, budget, 0)

    @property
    def scope(self):
        """Who shares a retained set: ``kv_head`` (nobody), all heads of a ``layer``, or ``model``.

        A policy of a wider scope sees the rows of all those heads as one group.
        """
        return "kv_head"

    @property
    def nested(self):
        """Whether priorities come from full rows alone, so that one pass serves all budgets."""
        return self.kind == "clairvoyant"

    @property
    def kernels(self):
        """The compiled pair (observe, rate) of these parameters."""
        return type(self).observe, type(self).rate

    def settings(self, context):
        """Numbers handed to the compiled functions, float64 [any]."""
        return np.zeros(0)

    def sizes(self, context):
        """Lengths of ``per_slot`` (of each entry, beside features) and ``memory`` (of the head)."""
        return 0, 0

    def features(self, context):
        """What the rule needs to know of ``context.tensors``, token by token: float64 [T, m].

        The engine copies row t to the first m places of the newcomer's ``per_slot`` when token t
        arrives. An online policy computes row t from tokens up to t alone.
        """
        return np.zeros((context.tokens, 0))

    def table(self, mean_rows):
        """Clairvoyant policies: float64 [T, T], row t available to ``rate`` at step t."""
        return np.zeros((0, 0))

    def describe(self, budget):
        """The resolved parameters as text: parts first, then the rest in order of declaration."""
        parts = self.parts(budget)
        items = [f"{name}={getattr(parts, name)}" for name in ("n_sink", "n_heavy", "n_recent")]
        skip = {"n_sink", "n_heavy", "n_recent", "recent"}
        items += [f"{f.name}={getattr(self, f.name)}" for f in fields(self) if f.name not in skip]
        return " ".join(items)


def without_parts(parameters):
    """What :meth:`Policy.describe` says, less the parts of a budget."""
    return re.sub(r"n_\w+=\d+ ?", "", parameters)


def one_of(policy, name, options):
    """Raise BadArgument unless parameter ``name`` of ``policy`` is one of ``options``."""
    value = getattr(policy, name)
    if value not in options:
        raise BadArgument(
            "a parameter has an unknown value",
            where=f"{policy.name}:{name}",
            got=repr(value),
            expected=" or ".join(map(str, options)),
        )


def whole_number(policy, name, least):
    """Raise BadArgument unless parameter ``name`` is an integer of at least ``least``."""
    value = getattr(policy, name)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadArgument(
            "a parameter is not usable",
            where=f"{policy.name}:{name}",
            got=repr(value),
            expected=f"a whole number of at least {least}",
        )


def share(policy, name):
    """Raise BadArgument unless parameter ``name`` is a share from 0 to 1."""
    value = getattr(policy, name)
    if not 0 <= value <= 1:
        raise BadArgument(
            "a parameter is out of range",
            where=f"{policy.name}:{name}",
            got=value,
            expected="a share from 0 to 1",
        )


def part_of(part, budget):
    """A share of a budget, rounded down exactly: 0.29 of 100 is 29."""
    return int(Fraction(str(part)) * budget)


def heavy_part(recent, budget):
    """The share ``1 - recent`` of a budget, rounded down exactly; one entry is always recent."""
    return min(int((1 - Fraction(str(recent))) * budget), budget - 1)


def checked_parts(policy, budget):
    """The :class:`Parts` of a budget, checked.

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


def sinks_within(policy, n_sink, budget, *, default):
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
