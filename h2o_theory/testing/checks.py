"""The checks of the contract, each a function of a policy and a random generator that may raise."""

import dataclasses

import numpy as np

from h2o_theory.engine.run import rows_depend_on_budget
from h2o_theory.errors import BadArgument, ContractBroken
from h2o_theory.optimum import optimum_curve, to_fixed_point
from h2o_theory.testing.instances import random_rows, random_tensors, schedule_of, schedules_of

__all__ = ["CHECKS"]


def _broken(policy, check, place, got, expected):
    raise ContractBroken(
        f"the policy breaks its contract: {check}",
        where=f"{policy.name}, {place}",
        got=got,
        expected=expected,
    )


def _same(policy, check, place, first, second):
    first, second = np.broadcast_arrays(first, second)
    different = np.flatnonzero(first != second)
    if different.size:
        j = different[0]
        got = f"{first[j]} and {second[j]}"
        _broken(policy, check, f"{place}, eviction of token {j}", got, "the same step")


def _does_not_see_the_future(policy, rng):
    if policy.kind != "online":
        return
    rows, tensors = random_rows(rng, 2, 30), random_tensors(rng, 2, 30)
    for budget, prefill in ((1, 0), (6, 0), (11, 0), (9, 12)):
        before = schedule_of(policy, rows, budget, prefill=prefill, tensors=tensors)
        for cut in (13, 20, 29):
            later, other = rows.copy(), random_tensors(rng, 2, 30)
            later[:, cut:] = random_rows(rng, 2, 30)[:, cut:]
            spliced = _spliced(tensors, other, cut)
            after = schedule_of(policy, later, budget, prefill=prefill, tensors=spliced)
            place = f"budget {budget}, everything from {cut} changed"
            early = np.minimum(before, cut), np.minimum(after, cut)
            _same(policy, "it sees the future", place, *early)


def _spliced(tensors, other, cut):
    """``tensors`` up to position ``cut`` and ``other`` from there."""
    names = ("queries", "unrotated", "keys", "values")
    pairs = {name: (getattr(tensors, name), getattr(other, name)) for name in names}
    joined = {
        name: np.concatenate([a[..., :cut, :], b[..., cut:, :]], axis=-2)
        for name, (a, b) in pairs.items()
    }
    return dataclasses.replace(tensors, **joined)


def _does_not_see_evicted_columns(policy, rng):
    if policy.kind != "online" or policy.rows == "raw":
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


def _keeps_everything_at_full_budget(policy, rng):
    for rows in _instances(rng):
        tokens = rows.shape[1]
        schedule = schedule_of(policy, rows, tokens)
        _same(policy, "k = T is not the full cache", f"T {tokens}", schedule >= tokens - 1, True)


def _instances(rng):
    yield random_rows(rng, 3, 26)
    yield np.tril(np.ones((1, 15, 15))) / np.arange(1, 16)[:, None]
    yield np.eye(9)[None]
    yield np.ones((1, 1, 1))


def _is_determined_by_the_seed(policy, rng):
    rows = random_rows(rng, 2, 30)
    first, second = (schedule_of(policy, rows, 7, seed=3) for _ in range(2))
    _same(
        policy,
        "it is not deterministic: the same seed gives two schedules",
        "budget 7",
        first,
        second,
    )


def _does_not_depend_on_blocks(policy, rng):
    rows = random_rows(rng, 2, 30)
    for prefill in (0, 11):
        whole = schedule_of(policy, rows, 7, prefill=prefill)
        for block_rows in (1, 8):
            pieces = schedule_of(policy, rows, 7, prefill=prefill, block_rows=block_rows)
            _same(policy, "blocks change the schedule", f"blocks of {block_rows}", whole, pieces)


def _keeps_heads_apart(policy, rng):
    heads = [(random_rows(rng, 2, 30), random_tensors(rng, 2, 30)) for _ in range(3)]

    def schedules(order):
        found = {
            h: schedule_of(policy, heads[h][0], 7, kv_head=h, tensors=heads[h][1]) for h in order
        }
        return np.concatenate([found[h] for h in sorted(found)])

    place = "three heads, replayed in two orders"
    _same(policy, "one head changes another", place, schedules((0, 1, 2)), schedules((2, 0, 1)))
    if policy.group == "first":
        return
    rows, tensors = heads[0]
    swapped = dataclasses.replace(
        tensors, queries=tensors.queries[::-1], unrotated=tensors.unrotated[::-1]
    )
    first = schedule_of(policy, rows, 7, tensors=tensors)
    second = schedule_of(policy, np.ascontiguousarray(rows[::-1]), 7, tensors=swapped)
    _same(policy, "the order of query heads matters", "two heads in a group", first, second)


def _starts_alike_raw_and_renormalised(policy, rng):
    is_shipped = dataclasses.is_dataclass(policy)
    if not is_shipped or "rows" not in {item.name for item in dataclasses.fields(policy)}:
        return
    rows = random_rows(rng, 2, 30)
    for prefill in (0, 12):
        schedules = []
        for kind in ("raw", "renormalised"):
            try:
                changed = dataclasses.replace(policy, rows=kind)
            except BadArgument:  # its other parameters allow one kind only
                return
            schedules.append(schedule_of(changed, rows, 9, prefill=prefill))
        step = min(schedules[0].min(), schedules[1].min())
        first, second = (schedule == step for schedule in schedules)
        place = f"first eviction, prefill {prefill}"
        _same(policy, "raw and renormalised differ before any eviction", place, first, second)


def _serves_all_budgets_in_one_pass(policy, rng):
    if not policy.nested:
        return
    if rows_depend_on_budget(policy):
        raise ContractBroken(
            "one pass is not direct simulation: renormalised rows depend on the budget",
            where=policy.name,
            got="nested, rows renormalised",
            expected="nested for raw rows alone",
        )
    for rows in _instances(rng):
        tokens = rows.shape[1]
        together = {}
        for budget in range(1, tokens + 1):
            parts = policy.parts(budget)
            together.setdefault((parts.n_sink, parts.n_recent), []).append(budget)
        for prefill in sorted({0, tokens // 2} - {tokens}):
            for budgets in together.values():
                schedules = schedules_of(policy, rows, budgets, prefill=prefill, block_rows=7)
                for budget, schedule in zip(budgets, schedules, strict=True):
                    place = f"T {tokens}, budget {budget}, prefill {prefill}"
                    direct = schedule_of(policy, rows, budget, prefill=prefill)
                    _same(policy, "one pass is not direct simulation", place, schedule, direct)


def _does_not_beat_the_optimum(policy, rng):
    for rows in (random_rows(rng, 2, 40), *_instances(rng)):
        tokens = rows.shape[1]
        fixed = to_fixed_point(rows.mean(axis=0))
        position = np.arange(tokens)
        for prefill in sorted({0, tokens // 2} - {tokens}):
            curve = optimum_curve(fixed, tokens, prefill=prefill)
            topk = np.cumsum(-np.sort(-fixed[prefill:], axis=-1).sum(axis=0))
            for budget in sorted({1, min(2, tokens), max(tokens // 4, 1), tokens}):
                schedule = schedule_of(policy, rows, budget, prefill=prefill)
                visible = (position <= position[:, None]) & (position[:, None] <= schedule)
                value = int(np.where(visible, fixed, 0)[prefill:].sum())
                place = f"T {tokens}, budget {budget}, prefill {prefill}"
                if not value <= curve.values[budget - 1] <= topk[budget - 1]:
                    _broken(policy, "it beats the optimum", place, value, "at most the optimum")


CHECKS = (
    # First: whatever changes between two equal runs would be taken for a fault of another kind.
    _is_determined_by_the_seed,
    _does_not_see_the_future,
    _does_not_see_evicted_columns,
    _keeps_and_uses_the_budget,
    _keeps_everything_at_full_budget,
    _does_not_depend_on_blocks,
    _keeps_heads_apart,
    _starts_alike_raw_and_renormalised,
    _serves_all_budgets_in_one_pass,
    _does_not_beat_the_optimum,
)
