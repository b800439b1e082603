"""Part E, what attention looks like: sparsity and the bias towards early tokens."""

import functools

import numpy as np

from h2o_theory.attention import SPARSITY_THRESHOLD, count_sparse
from h2o_theory.optimum import UNITS, optimum_at, to_fixed_point
from paper_checks.finding import NOT_REPRODUCED, REPRODUCED, CheckFinding
from paper_checks.recorded import (
    bootstrap,
    committed_trace,
    described,
    heads,
    interval_text,
)

__all__ = ["obs_20x", "obs_early_bias", "obs_sparsity"]

SPARSE = 0.95
"""The share that the paper states."""
EARLY = HEAVY = 0.1
"""First 10 % of the positions; heavy hitters are the 10 % with most accumulated attention."""


@functools.cache
def _counts():
    """layer -> (causal share, square share, causal share of the last quarter of rows) by head."""
    trace, found = committed_trace(), {}
    late = trace.tokens * 3 // 4
    for layer, head in heads():
        rows = trace.rows(layer, head)
        whole = count_sparse(rows, 0)
        last = count_sparse(rows[:, late:], late)
        shares = whole.causal_share, whole.square_share, last.causal_share
        found.setdefault(layer, []).append(shares)
    return {layer: np.array(shares) for layer, shares in found.items()}


def obs_sparsity() -> CheckFinding:
    """Share of entries below 1 % of the row's maximum, by layer, in both countings."""
    layers = {layer: shares.mean(axis=0) for layer, shares in _counts().items()}
    every = np.concatenate(list(_counts().values()))
    most = len(layers) - 1
    causal = sum(shares[0] > SPARSE for shares in layers.values())
    square = sum(shares[1] > SPARSE for shares in layers.values())
    return CheckFinding(
        REPRODUCED if causal >= most else NOT_REPRODUCED,
        f"Over causal entries {interval_text(every[:, 0])} of the entries are below "
        f"{SPARSITY_THRESHOLD:.0%} of their row's maximum (mean over {len(every)} kv_heads, 95 % "
        f"interval), over the whole square {interval_text(every[:, 1])}; above {SPARSE:.0%} in "
        f"{causal} and {square} of {len(layers)} layers. It grows with length: "
        f"{interval_text(every[:, 2])} in the last quarter of the rows.",
        f"all entries of {len(every)} kv_heads (query heads apart); {described()}",
        {
            "by layer: causal, square": {
                str(layer): [round(float(x), 3) for x in shares[:2]]
                for layer, shares in layers.items()
            }
        },
    )


def obs_20x() -> CheckFinding:
    """What share of attention a cache of 5 % can retain at best, and what sparsity suggests."""
    trace = committed_trace()
    budget = int((1 - SPARSE) * trace.tokens)
    needed, retained, per_row = [], [], []
    for layer, head in heads():
        rows = trace.rows(layer, head).mean(axis=0)
        fixed = to_fixed_point(rows)
        schedule = optimum_at(fixed, budget)
        retained.append(schedule.value / UNITS / trace.tokens)
        ordered = -np.sort(-rows, axis=1)
        per_row.append(ordered[:, :budget].sum(axis=1).mean())
        full = rows[-len(rows) // 4 :]
        share = np.cumsum(-np.sort(-full, axis=1), axis=1)
        needed.append(np.mean((share < SPARSE).sum(axis=1) + 1) / trace.tokens)
    causal = np.concatenate(list(_counts().values()))[:, 0]
    smaller = 1 / (1 - causal.mean())
    low, _ = bootstrap(retained)
    return CheckFinding(
        REPRODUCED if low >= SPARSE else NOT_REPRODUCED,
        f"The arithmetic is 1/(1 - 0.95) = {1 / (1 - SPARSE):.0f}. But entries below 1 % of a "
        "row's maximum add up, and each row has its own: with 5 % of the tokens even the optimal "
        f"schedule, with hindsight, retains {interval_text(retained)} of the attention, and "
        f"free choice in each row {interval_text(per_row)}. The causal sparsity measured here "
        f"suggests a factor of {smaller:.1f} by the same arithmetic.",
        f"exact optimum at k = {budget}, {len(retained)} kv_heads; {described()}",
        {"share of tokens that holds 95 % of a late row's attention": interval_text(needed)},
    )


def obs_early_bias() -> CheckFinding:
    """Are heavy hitters early; by how much less if the sum is divided by the rows it has seen?"""
    trace = committed_trace()
    tokens = trace.tokens
    count = int(HEAVY * tokens)
    seen = tokens - np.arange(tokens)
    # What each position would receive if every row attended evenly: exposure alone.
    even = np.cumsum(1.0 / np.arange(1, tokens + 1)[::-1])[::-1]
    early, early_mean, beyond, first_four = [], [], [], []
    for layer, head in heads():
        total = trace.rows(layer, head).mean(axis=0).sum(axis=0)
        early.append(_early_share(total, count))
        early_mean.append(_early_share(total / seen, count))
        beyond.append(_early_share(total / even, count))
        first_four.append(total[:4].sum() / total.sum())
    more = np.subtract(early, early_mean)
    favours = bootstrap(early)[0] > 2 * EARLY and bootstrap(more)[0] > 0
    return CheckFinding(
        REPRODUCED if favours else NOT_REPRODUCED,
        f"Of the {HEAVY:.0%} of tokens with most accumulated attention {interval_text(early)} are "
        f"among the first {EARLY:.0%} of positions (chance: {EARLY:.2f}). Ranked by the mean over "
        f"the rows that see them, {interval_text(early_mean)} are: earlier tokens are seen by more "
        f"rows, and summing puts {interval_text(more)} more there. Ranked by the sum over what "
        f"even attention would give, {interval_text(beyond)} are: it is exposure that puts them "
        f"there. The first four positions alone receive {interval_text(first_four)} of everything.",
        f"{len(early)} kv_heads; {described()}",
    )


def _early_share(scores, count):
    # Among equals the later position, so that a tie is no evidence of being early; equal are
    # scores that differ by rounding.
    rounded = np.round(scores / scores.max(), 9)
    heavy = len(scores) - 1 - np.argsort(-rounded[::-1], kind="stable")[:count]
    return float((heavy < EARLY * len(scores)).mean())
