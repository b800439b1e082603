"""The contract of a policy, as checks that anyone can run on a policy of their own.

::

    from h2o_theory.testing import check_policy
    check_policy(MyPolicy())

Every shipped policy passes the same checks, by being registered.
"""

from dataclasses import dataclass

import numpy as np

from h2o_theory.engine.measure import topk_mass
from h2o_theory.engine.run import make_run
from h2o_theory.errors import ContractBroken
from h2o_theory.optimum import optimum_curve, to_fixed_point
from h2o_theory.policies import Context, make_policy

__all__ = ["ContractReport", "check_policy", "frozen_since", "random_rows", "schedule_of"]


@dataclass(frozen=True)
class ContractReport:
    """What :func:`check_policy` found; a broken contract raises instead.

    Attributes
    ----------
    policy : str
    checks : tuple of str
        Names of the checks that passed.
    frozen_since : int or None
        Step after which the retained set no longer changed although the cache was full, on a
        random instance of 48 tokens with 8 entries; None if it kept changing. A warning sign, not
        a fault: a policy that always evicts the newcomer keeps its first tokens for ever.
    """

    policy: str
    checks: tuple
    frozen_since: int | None


def check_policy(policy, seed=0):
    """Run the contract on a policy.

    The checks: an online policy does not see later rows, nor evicted columns; exactly one entry
    leaves whenever the cache is full, none before, none returns, the newcomer is visible; the
    same seed gives the same schedule; replaying in blocks changes nothing; T = 1, k = 1 and k = T
    work, and k = T keeps everything; full of ties works; retained mass <= exact optimum <=
    per-row top-k bound.

    Parameters
    ----------
    policy : Policy, PlainPolicy or str
    seed : int
        For the random instances.

    Returns
    -------
    ContractReport

    Raises
    ------
    ContractBroken
        With the check, the instance and the first step at which it fails.
    """
    policy = make_policy(policy) if isinstance(policy, str) else policy
    rng = np.random.default_rng(seed)
    for check in _CHECKS:
        check(policy, rng)
    schedule = schedule_of(policy, random_rows(rng, 2, 48), 8)
    names = tuple(check.__name__.strip("_").replace("_", " ") for check in _CHECKS)
    return ContractReport(policy.name, names, frozen_since(schedule, 8))


def random_rows(rng, group, tokens):
    """Random causal attention [G, T, T]: noise, a sink, salient tokens and recency."""
    lag = np.arange(tokens)[:, None] - np.arange(tokens)
    logits = rng.normal(size=(group, tokens, tokens)) + rng.normal(size=tokens)
    logits -= 0.5 * np.log1p(np.maximum(lag, 0))
    logits[:, :, 0] += 2.0
    logits[:, lag < 0] = -np.inf
    rows = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return rows / rows.sum(axis=-1, keepdims=True)


def schedule_of(policy, rows, budget, *, prefill=0, seed=0, block_rows=None):
    """``evicted_at`` [T] of a policy on rows [G, T, T], replayed in blocks if asked for."""
    tokens = rows.shape[1]
    context = Context(budget, tokens, prefill, seed=seed)
    run = make_run(policy, context, rows.mean(axis=0))
    for start in range(0, tokens, block_rows or tokens):
        run.advance(np.ascontiguousarray(rows[:, start : start + (block_rows or tokens)]), start)
    return run.evicted_at


def frozen_since(schedule, budget):
    """First step from which every victim is the newcomer of its step; None if there is none.

    Judged over at least ``budget`` steps before the last row.
    """
    tokens = len(schedule)
    newcomer = schedule == np.arange(tokens)
    changed = np.flatnonzero(~newcomer & (schedule < tokens))
    last = int(schedule[changed].max(initial=budget - 1))
    return last + 1 if last + 1 <= tokens - budget and newcomer[last + 1 :].all() else None


def _broken(policy, check, place, got, expected):
    raise ContractBroken(
        f"the policy breaks its contract: {check}",
        where=f"{policy.name}, {place}",
        got=got,
        expected=expected,
    )


def _same(policy, check, place, first, second, mask=slice(None)):
    different = np.flatnonzero(np.asarray(first)[mask] != np.asarray(second)[mask])
    if different.size:
        j = different[0]
        got = f"{np.asarray(first)[mask][j]} and {np.asarray(second)[mask][j]}"
        _broken(policy, check, f"{place}, eviction of token {j}", got, "the same step")


def _does_not_see_the_future(policy, rng):
    if policy.kind != "online":
        return
    rows = random_rows(rng, 2, 30)
    for budget, prefill in ((1, 0), (6, 0), (11, 0), (9, 12)):
        before = schedule_of(policy, rows, budget, prefill=prefill)
        for cut in (13, 20, 29):
            changed = rows.copy()
            changed[:, cut:] = random_rows(rng, 2, 30)[:, cut:]
            after = schedule_of(policy, changed, budget, prefill=prefill)
            place = f"budget {budget}, rows from {cut} changed"
            early = np.minimum(before, cut), np.minimum(after, cut)
            _same(policy, "it sees later rows", place, *early)


def _does_not_see_evicted_columns(policy, rng):
    if policy.kind != "online" or getattr(policy, "rows", "renormalised") == "raw":
        return
    rows = random_rows(rng, 1, 24)
    schedule = schedule_of(policy, rows, 7)
    changed = rows.copy()
    for t in range(24):
        gone = np.flatnonzero(schedule[: t + 1] < t)
        changed[0, t, gone] *= rng.uniform(0, 2, size=gone.size)
    changed /= changed.sum(axis=-1, keepdims=True)
    after = schedule_of(policy, changed, 7)
    _same(policy, "it sees evicted columns", "budget 7", schedule, after)


def _keeps_and_uses_the_budget(policy, rng):
    for rows in _instances(rng):
        tokens = rows.shape[1]
        position = np.arange(tokens)
        for budget in sorted({1, min(2, tokens), max(tokens // 3, 1), tokens}):
            for prefill in sorted({0, 1, tokens // 2} - {tokens}):
                schedule = schedule_of(policy, rows, budget, prefill=prefill)
                place = f"T {tokens}, budget {budget}, prefill {prefill}"
                size = (position <= position[:, None]) & (position[:, None] <= schedule)
                size = size.sum(axis=1)
                # After a prefill shorter than the budget the cache fills up before it evicts.
                want = np.minimum(position + 1, np.where(position < prefill, tokens, budget))
                _same(policy, "it does not use exactly the budget", place, size, want)
                if (schedule < position).any():
                    _broken(policy, "a token left before it came", place, schedule, "later")


def _instances(rng):
    yield random_rows(rng, 3, 26)
    yield np.tril(np.ones((1, 15, 15))) / np.arange(1, 16)[:, None]
    yield np.eye(9)[None]
    yield np.ones((1, 1, 1))


def _is_determined_by_the_seed(policy, rng):
    rows = random_rows(rng, 2, 30)
    first, second = (schedule_of(policy, rows, 7, seed=3) for _ in range(2))
    _same(policy, "the same seed gives two schedules", "budget 7", first, second)


def _does_not_depend_on_blocks(policy, rng):
    rows = random_rows(rng, 2, 30)
    for prefill in (0, 11):
        whole = schedule_of(policy, rows, 7, prefill=prefill)
        for block_rows in (1, 8):
            pieces = schedule_of(policy, rows, 7, prefill=prefill, block_rows=block_rows)
            _same(policy, "blocks change the schedule", f"blocks of {block_rows}", whole, pieces)


def _does_not_beat_the_optimum(policy, rng):
    for rows in (random_rows(rng, 2, 40), *_instances(rng)):
        tokens = rows.shape[1]
        fixed = to_fixed_point(rows.mean(axis=0))
        position = np.arange(tokens)
        for prefill in sorted({0, tokens // 2} - {tokens}):
            curve = optimum_curve(fixed, tokens, prefill=prefill)
            topk = topk_mass(fixed, range(1, tokens + 1), prefill)
            for budget in sorted({1, min(2, tokens), max(tokens // 4, 1), tokens}):
                schedule = schedule_of(policy, rows, budget, prefill=prefill)
                visible = (position <= position[:, None]) & (position[:, None] <= schedule)
                value = int(np.where(visible, fixed, 0)[prefill:].sum())
                place = f"T {tokens}, budget {budget}, prefill {prefill}"
                if not value <= curve.values[budget - 1] <= topk[budget]:
                    _broken(policy, "it beats the optimum", place, value, "at most the optimum")


_CHECKS = (
    _does_not_see_the_future,
    _does_not_see_evicted_columns,
    _keeps_and_uses_the_budget,
    _is_determined_by_the_seed,
    _does_not_depend_on_blocks,
    _does_not_beat_the_optimum,
)
