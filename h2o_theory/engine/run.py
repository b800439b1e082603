"""One policy at one budget on one head: its state, its schedule, its audit."""

from typing import NamedTuple

import numpy as np

from h2o_theory.engine.advance import Limits, RowKind, State, compiled_advance
from h2o_theory.engine.plain import PlainRun
from h2o_theory.policies import CompiledPolicy, Context, Policy
from h2o_theory.policies.base import GROUP_REDUCTIONS
from h2o_theory.policies.kernels import Cache
from h2o_theory.policies.parts import resolve_parts
from h2o_theory.policies.tensors import require

__all__ = [
    "Audit",
    "BlockRun",
    "CompiledRun",
    "audit",
    "features_of",
    "future_table",
    "make_run",
    "no_sinks",
    "row_kind",
    "rows_depend_on_budget",
]


class BlockRun:
    """What compiled runs share: the state of one policy on one head, advanced block by block.

    Parameters
    ----------
    loop : compiled function
        As :func:`h2o_theory.engine.advance.advance`.
    limits : NamedTuple
    slots : int
        The most entries ever held, the newcomer included.
    policy : CompiledPolicy
    context : Context
    mean_rows : array [T, T] or None
        For clairvoyant policies.
    out : int array [T] or [T, m]
        The schedules, filled in as they are decided.
    """

    def __init__(self, loop, limits, slots, policy, context, mean_rows, out) -> None:
        per_entry, memory = policy.sizes(context)
        features = features_of(policy, context)
        cache = Cache(
            position=np.zeros(slots, dtype=np.int64),
            score=np.zeros(slots),
            entry=np.zeros((slots, features.shape[1] + per_entry)),
            memory=np.zeros(memory),
        )
        self._loop, self._limits, self._held, self._out = loop, limits, 0, out
        self._state = State(cache, features, row=np.zeros(slots), spare=np.zeros(slots))
        given = policy.settings(context)
        self._settings = type(given)(*map(_contiguous, given))
        self._table = future_table(policy, context, mean_rows)
        self._no_sinks = np.zeros((0, 0))

    def advance(self, rows: np.ndarray, start: int, sink_share: np.ndarray | None = None) -> None:
        """Replay a block ``rows`` [G, B, T] that begins at row ``start``.

        ``sink_share`` [G, B] is what a sink without a key takes of each row; nothing by default.
        """
        if sink_share is None:
            if self._no_sinks.shape != rows.shape[:2]:
                self._no_sinks = no_sinks(rows)
            sink_share = self._no_sinks
        table = self._table
        if table.shape[1]:
            table = table[start : start + rows.shape[1]]
        self._held = self._loop(
            _contiguous(rows),
            _contiguous(sink_share),
            table,
            start,
            self._held,
            self._limits,
            self._state,
            self._settings,
            self._out,
        )

    def take_features(self, features: np.ndarray, start: int, stop: int) -> None:
        """Set the features of the tokens ``start .. stop``, of which those given so far were not
        known: a model hands its keys over as they arrive."""
        self._state.features[start:stop] = features[start:stop]


def _contiguous(value):
    """An array as the loop declares it, which reads memory unseen; a number as it is."""
    if not isinstance(value, np.ndarray):
        return value
    if value.flags.c_contiguous and value.dtype == np.float64:
        return value
    return np.ascontiguousarray(value, dtype=np.float64)


class CompiledRun(BlockRun):
    """A compiled policy at one budget; ``evicted_at`` int64 [T] is its schedule so far."""

    def __init__(
        self, policy: CompiledPolicy, context: Context, mean_rows: np.ndarray | None
    ) -> None:
        parts = resolve_parts(policy, context.budget)
        # The window of the next step holds n_recent entries, the next query's own included, so that
        # n_recent - 1 are protected when this step's victim is chosen.
        window = max(parts.n_recent - 1, 0)
        limits = Limits(context.budget, context.prefill, parts.n_sink, window, row_kind(policy))
        self.evicted_at = np.full(context.tokens, context.tokens, dtype=np.int64)
        slots, loop = max(context.budget, context.prefill) + 1, compiled_advance(policy)
        super().__init__(loop, limits, slots, policy, context, mean_rows, self.evicted_at)


def no_sinks(rows: np.ndarray) -> np.ndarray:
    """The sink shares of a block of a layer without sinks: zeros [G, B]."""
    return np.zeros(rows.shape[:2])


def row_kind(policy: Policy) -> RowKind:
    """What the loop forms for ``observe``."""
    return RowKind(
        is_needed="rows" in policy.needs.split() and policy.kind == "online",
        is_raw=policy.rows == "raw",
        reduction=GROUP_REDUCTIONS.index(policy.group),
    )


def rows_depend_on_budget(policy: Policy) -> bool:
    """Whether a policy's rows are renormalised over what its cache holds."""
    kind = row_kind(policy)
    return kind.is_needed and not kind.is_raw


def future_table(
    policy: CompiledPolicy, context: Context, mean_rows: np.ndarray | None
) -> np.ndarray:
    """The table of a clairvoyant policy, float64 [T, T]; [T, 0] for the others."""
    if not policy.needs_future:
        return np.zeros((context.tokens, 0))
    return np.ascontiguousarray(policy.table(mean_rows), dtype=np.float64)


def features_of(policy: CompiledPolicy, context: Context) -> np.ndarray:
    """The policy's features, float64 [T, m]; m = 0 if it looks at no tensors."""
    require(policy, context.tensors)
    return np.ascontiguousarray(policy.features(context), dtype=np.float64)


def make_run(
    policy: Policy, context: Context, mean_rows: np.ndarray | None = None
) -> CompiledRun | PlainRun:
    """The run of a policy that decides row by row; ``mean_rows`` [T, T] for clairvoyant ones.

    Raises BadArgument if the policy needs tensors that ``context.tensors`` does not hold.

    Examples
    --------
    >>> from h2o_theory.policies import make_policy
    >>> run = make_run(make_policy("recent"), Context(budget=2, tokens=4))
    >>> run.advance(np.tril(np.ones((1, 4, 4))), start=0)
    >>> run.evicted_at
    array([1, 2, 3, 4])
    """
    kind = CompiledRun if isinstance(policy, CompiledPolicy) else PlainRun
    return kind(policy, context, mean_rows)


class Audit(NamedTuple):
    """Sizes of the visible set of a schedule over the scored rows.

    Attributes
    ----------
    largest : int
    mean : float
    sizes : int array [scored rows]
    """

    largest: int
    mean: float
    sizes: np.ndarray


def audit(evicted_at: np.ndarray, context: Context) -> Audit:
    """The sizes of a schedule's visible sets.

    Key j is visible to row t iff ``j <= t <= evicted_at[j]``. Raises AssertionError if a policy
    got past the budget, which the engine makes impossible.
    """
    tokens = context.tokens
    leaving = np.bincount(np.minimum(evicted_at, tokens) + 1, minlength=tokens + 2)[: tokens + 1]
    size = np.arange(1, tokens + 1) - np.cumsum(leaving)[:tokens]
    scored = size[context.prefill :]
    if scored.size == 0:
        return Audit(0, float("nan"), scored)
    assert scored.max() <= context.budget, "a policy exceeded its budget"
    assert (evicted_at >= np.arange(tokens)).all(), "a token was evicted before it arrived"
    return Audit(int(scored.max()), float(scored.mean()), scored)
