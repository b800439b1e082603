"""Policies written as plain Python classes: slower, same semantics, any state you like."""

import copy
import dataclasses

import numpy as np

from h2o_theory.attention import renormalise
from h2o_theory.errors import BadArgument
from h2o_theory.policies.base import GROUP_REDUCTIONS, ROWS, Parts, checked_parts, one_of
from h2o_theory.policies.choose import lowest
from h2o_theory.policies.tensors import TENSORS, require

__all__ = ["PlainPolicy", "PlainRun"]


class PlainPolicy:
    """Base for a policy of your own; override :meth:`rate` and usually :meth:`observe`.

    At every step the engine adds the newcomer, calls ``observe``, and while the cache is full
    calls ``rate`` and evicts the lowest rating among evictable positions, the oldest among
    equals. A subclass sees the visible part of a row only. Example::

        class LastRow(PlainPolicy):
            name = "last_row"

            def observe(self, t, positions, row):
                self.last = dict(zip(positions, row))

            def rate(self, t, positions):
                return [self.last[j] for j in positions]

        replay(trace, [LastRow()], "10%")

    Attributes
    ----------
    name : str
    kind : {"online", "clairvoyant"}
        A clairvoyant policy is given ``self.future = mean_rows`` [T, T] before it starts.
    needs : str
        Any of ``positions rows queries unrotated keys values``. Before each step the engine sets
        ``self.queries`` [G, t + 1, d], ``self.keys`` [t + 1, d] and so on, as far as they are
        named here: the tensors of the tokens that have arrived, evicted ones included.
    rows : {"renormalised", "raw"}
    group : {"mean", "sum", "max", "first"}
    scope : {"kv_head", "layer", "model"}
    """

    name = "plain"
    kind = "online"
    needs = "rows"
    rows = "renormalised"
    group = "mean"
    scope = "kv_head"
    future = None

    def parts(self, budget):
        """Protected parts of the budget, :class:`h2o_theory.policies.Parts`."""
        return Parts(0, budget, 0)

    def describe(self, budget):
        """The resolved parameters as text for the results table."""
        parts = self.parts(budget)
        return (
            f"n_sink={parts.n_sink} n_heavy={parts.n_heavy} n_recent={parts.n_recent} "
            f"rows={self.rows} group={self.group}"
        )

    def start(self, context):
        """Reset the state; ``context`` is :class:`h2o_theory.policies.Context`."""

    def observe(self, t, positions, row):
        """See row t over the visible ``positions`` (ascending), reduced over the group."""

    def rate(self, t, positions):
        """One number per position; the lowest is evicted."""
        raise TypeError(f"{type(self).__name__} must define rate(t, positions)")


def check_declarations(policy):
    """Raise BadArgument unless a plain policy declares what :class:`PlainPolicy` says it may."""
    for name, options in _DECLARATIONS.items():
        one_of(policy, name, options)
    for word in policy.needs.split():
        if word not in _NEEDS:
            raise BadArgument(
                "a policy cannot look at this",
                where=f"{policy.name}:needs",
                got=repr(word),
                expected=f"any of {' '.join(_NEEDS)}",
            )


_DECLARATIONS = {
    "kind": ("online", "clairvoyant"),
    "rows": ROWS,
    "group": GROUP_REDUCTIONS,
    "scope": ("kv_head", "layer", "model"),
}
_NEEDS = ("positions", "rows", *TENSORS)
_REDUCE = {
    "mean": lambda rows: rows.mean(axis=0),
    "sum": lambda rows: rows.sum(axis=0),
    "max": lambda rows: rows.max(axis=0),
    "first": lambda rows: rows[0],
}


class PlainRun:
    """One replay of a plain policy on one head, fed block by block."""

    def __init__(self, policy, context, mean_rows):
        require(policy, context.tensors)
        # A copy, because heads run in threads and each needs a state of its own.
        policy = copy.deepcopy(policy)
        self.policy, self.context = policy, context
        self.evicted_at = np.full(context.tokens, context.tokens, dtype=np.int64)
        self._parts = checked_parts(policy, context.budget)
        if policy.kind == "clairvoyant":
            policy.future = mean_rows
        policy.start(dataclasses.replace(context, tensors=None))

    def advance(self, rows, start, sink_share=None):
        """Replay a block ``rows`` [G, B, T] that begins at row ``start``."""
        context, parts = self.context, self._parts
        for b in range(rows.shape[1]):
            t = start + b
            seen = self.evicted_at[: t + 1] == context.tokens
            visible = np.flatnonzero(seen)
            block = rows[:, b, : t + 1]
            if self.policy.rows == "renormalised":
                share = 0.0 if sink_share is None else sink_share[:, b, None]
                block = renormalise(block, seen, share)
            row = _REDUCE[self.policy.group](block)[visible]
            self._show_tensors(t)
            self.policy.observe(t, visible, row)
            while len(visible) >= context.budget and t >= context.prefill - 1:
                ratings = np.asarray(self.policy.rate(t, visible), dtype=np.float64)
                if ratings.shape != visible.shape:
                    raise BadArgument(
                        "rate gives one number for each position",
                        where=f"{self.policy.name}, step {t}",
                        got=f"shape {list(ratings.shape)}",
                        expected=list(visible.shape),
                    )
                last = len(visible) - max(parts.n_recent - 1, 0)
                slot = lowest(ratings, visible, parts.n_sink, last)
                self.evicted_at[visible[slot]] = t
                visible = np.delete(visible, slot)

    def _show_tensors(self, t):
        for kind in set(self.policy.needs.split()) & set(TENSORS):
            setattr(self.policy, kind, getattr(self.context.tensors, kind)[..., : t + 1, :])
