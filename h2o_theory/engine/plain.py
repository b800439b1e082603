"""The replay loop of plain policies, in Python: same semantics as the compiled one."""

import copy
import dataclasses

import numpy as np

from h2o_theory.attention import renormalise
from h2o_theory.errors import BadArgument
from h2o_theory.policies import TENSORS
from h2o_theory.policies.choose import lowest
from h2o_theory.policies.parts import resolve_parts
from h2o_theory.policies.tensors import require

__all__ = ["PlainRun"]

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
        self._parts = resolve_parts(policy, context.budget)
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
