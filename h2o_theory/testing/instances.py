"""Random attention, and the schedule of a policy on it."""

import numpy as np

from h2o_theory.engine.run import make_run
from h2o_theory.engine.stack import StackRun
from h2o_theory.policies import TENSORS, Context, Tensors

__all__ = ["random_rows", "random_tensors", "schedule_of", "schedules_of"]


def random_rows(rng, group, tokens):
    """Random causal attention [G, T, T]: noise, a sink, salient tokens and recency."""
    lag = np.arange(tokens)[:, None] - np.arange(tokens)
    logits = rng.normal(size=(group, tokens, tokens)) + rng.normal(size=tokens)
    logits -= 0.5 * np.log1p(np.maximum(lag, 0))
    logits[:, :, 0] += 2.0
    logits[:, lag < 0] = -np.inf
    rows = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return rows / rows.sum(axis=-1, keepdims=True)


def random_tensors(rng, group, tokens, width=6):
    """Random queries, keys and values of one kv_head; rows need not follow from them."""
    queries, unrotated = rng.normal(size=(2, group, tokens, width))
    keys, values = rng.normal(size=(2, tokens, width))
    return Tensors(queries, unrotated, keys, values, width**-0.5, (100.0, width))


def schedule_of(
    policy, rows, budget, *, prefill=0, seed=0, kv_head=0, block_rows=None, tensors=None
):
    """``evicted_at`` [T] of a policy on rows [G, T, T], replayed in blocks if asked for.

    A policy that looks at queries, keys or values gets ``tensors``, or random ones (always the
    same) if there are none.
    """
    tokens = rows.shape[1]
    tensors = _tensors(policy, rows, tensors)
    context = Context(budget, tokens, prefill, kv_head=kv_head, seed=seed, tensors=tensors)
    run = make_run(policy, context, rows.mean(axis=0))
    _feed(run, rows, block_rows)
    return run.evicted_at


def schedules_of(policy, rows, budgets, *, prefill=0, block_rows=None, tensors=None):
    """The schedules of a nested policy at budgets that share their protected parts, in one pass."""
    tensors = _tensors(policy, rows, tensors)
    contexts = [Context(k, rows.shape[1], prefill, tensors=tensors) for k in budgets]
    run = StackRun(policy, contexts, rows.mean(axis=0))
    _feed(run, rows, block_rows)
    return run.schedules


def _tensors(policy, rows, tensors):
    if tensors is None and set(policy.needs.split()) & set(TENSORS):
        return random_tensors(np.random.default_rng(0), *rows.shape[:2])
    return tensors


def _feed(run, rows, block_rows):
    tokens = rows.shape[1]
    for start in range(0, tokens, block_rows or tokens):
        run.advance(np.ascontiguousarray(rows[:, start : start + (block_rows or tokens)]), start)
