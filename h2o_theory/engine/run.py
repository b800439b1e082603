"""One policy at one budget on one head: its state, its schedule, its audit."""

import numpy as np

from h2o_theory.engine.advance import compiled_advance
from h2o_theory.engine.plain import PlainRun
from h2o_theory.policies import CompiledPolicy
from h2o_theory.policies.base import GROUP_REDUCTIONS
from h2o_theory.policies.parts import resolve_parts
from h2o_theory.policies.tensors import require

__all__ = [
    "CompiledRun",
    "audit",
    "features_of",
    "future_table",
    "make_run",
    "row_kind",
    "rows_depend_on_budget",
]


class CompiledRun:
    """State of a compiled policy; see :mod:`h2o_theory.engine.advance` for the arrays."""

    def __init__(self, policy, context, mean_rows):
        tokens, slots = context.tokens, max(context.budget, context.prefill) + 1
        parts = resolve_parts(policy, context.budget)
        per_slot, memory = policy.sizes(context)
        self._loop = compiled_advance(policy)
        self._limits = np.array(
            [
                0,
                context.budget,
                context.prefill,
                parts.n_sink,
                parts.n_recent,
                *row_kind(policy),
            ],
            dtype=np.int64,
        )
        self._position = np.zeros(slots, dtype=np.int64)
        self._score = np.zeros(slots)
        self._features = features_of(policy, context)
        self._per_slot = np.zeros((slots, self._features.shape[1] + per_slot))
        self._memory = np.zeros(memory)
        self._row, self._spare = np.zeros(slots), np.zeros(slots)
        self._settings = policy.settings(context)
        self._table = future_table(policy, mean_rows)
        self.evicted_at = np.full(tokens, tokens, dtype=np.int64)

    def take_features(self, features, start, stop):
        """Set the features of the tokens ``start .. stop``, of which those given so far were not
        known: a model hands its keys over as they arrive."""
        self._features[start:stop] = features[start:stop]

    def advance(self, rows, start, sink_share=None):
        """Replay a block ``rows`` [G, B, T] that begins at row ``start``.

        ``sink_share`` [G, B] is what a sink without a key takes of each row; nothing by default.
        """
        self._loop(
            rows,
            no_sinks(rows) if sink_share is None else sink_share,
            start,
            self._limits,
            self._features,
            self._position,
            self._score,
            self._per_slot,
            self._memory,
            self._table[start : start + rows.shape[1]],
            self._settings,
            self._row,
            self._spare,
            self.evicted_at,
        )


def no_sinks(rows):
    """The sink shares of a block of a layer without sinks: zeros [G, B]."""
    return np.zeros(rows.shape[:2])


def row_kind(policy):
    """What the loop forms for ``observe``: (needs rows, raw, index of the group reduction)."""
    return (
        "rows" in policy.needs.split() and policy.kind == "online",
        policy.rows == "raw",
        GROUP_REDUCTIONS.index(policy.group),
    )


def rows_depend_on_budget(policy):
    """Whether a policy's rows are renormalised over what its cache holds."""
    needs_rows, raw, _ = row_kind(policy)
    return needs_rows and not raw


def future_table(policy, mean_rows):
    """The table of a clairvoyant policy; empty for the others."""
    if not policy.needs_future:
        return np.zeros((0, 0))
    return np.ascontiguousarray(policy.table(mean_rows), dtype=np.float64)


def features_of(policy, context):
    """The policy's features, float64 [T, m]; m = 0 if it looks at no tensors."""
    require(policy, context.tensors)
    return np.ascontiguousarray(policy.features(context), dtype=np.float64)


def make_run(policy, context, mean_rows=None):
    """The run of a shipped or plain policy; ``mean_rows`` [T, T] only for clairvoyant ones.

    Raises BadArgument if the policy needs tensors that ``context.tensors`` does not hold.
    """
    kind = CompiledRun if isinstance(policy, CompiledPolicy) else PlainRun
    return kind(policy, context, mean_rows)


def audit(evicted_at, context):
    """Whether a schedule keeps to the budget: ``(largest |S_t|, mean |S_t|)`` over scored rows.

    Key j is visible to row t iff ``j <= t <= evicted_at[j]``. Raises AssertionError if a policy
    got past the budget, which the engine makes impossible.
    """
    tokens, prefill = context.tokens, context.prefill
    leaving = np.bincount(np.minimum(evicted_at, tokens) + 1, minlength=tokens + 2)[: tokens + 1]
    size = np.arange(1, tokens + 1) - np.cumsum(leaving)[:tokens]
    scored = size[prefill:]
    if scored.size == 0:
        return 0, float("nan"), scored
    assert scored.max() <= context.budget, "a policy exceeded its budget"
    assert (evicted_at >= np.arange(tokens)).all(), "a token was evicted before it arrived"
    return int(scored.max()), float(scored.mean()), scored
