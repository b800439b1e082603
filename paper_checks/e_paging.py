"""Part E: Belady's rule for a cache that can fetch back, and for one that cannot."""

import functools
import itertools

import numpy as np

from h2o_theory.optimum import belady_min
from paper_checks.finding import FAILS, HOLDS, CheckFinding
from paper_checks.subsets import matrices

__all__ = ["obs_belady"]


def obs_belady() -> CheckFinding:
    """Optimal with refetch on every small access pattern; not optimal without, by an instance."""
    wrong = tried = 0
    for tokens in (3, 4):
        below = np.tril_indices(tokens, -1)
        for choice in itertools.product((False, True), repeat=len(below[0])):
            accesses = np.eye(tokens, dtype=bool)
            accesses[below] = choice
            for budget in range(1, tokens + 1):
                tried += 1
                wrong += belady_min(accesses, budget).hits != _most_hits(accesses, budget)
    instance, looked_at = _smallest_loss()
    return CheckFinding(
        HOLDS if wrong == 0 and instance else FAILS,
        "With refetching, evicting what is needed farthest in the future has the most hits on "
        f"every access pattern tried ({wrong} exceptions). For a KV cache, where evicted keys are "
        "gone and rows weigh keys unequally, it is not optimal: the smallest instance is given.",
        f"{tried} access patterns with budgets, all with T <= 4, against exhaustive search; "
        f"attention matrices in halves, T <= 4, number {looked_at} being the first on which the "
        "rule loses (no ties)",
        {"smallest KV instance": instance},
    )


def _most_hits(accesses, budget):
    """The most references that find their key held, over all caches of budget - 1, with refetch.

    Between two rows any keys that are held or referenced by the row may be held.
    """
    tokens = len(accesses)

    @functools.cache
    def best(t, held):
        if t == tokens:
            return 0
        wanted = {j for j in range(t) if accesses[t, j]}
        hits = len(wanted & held)
        present = sorted(held | wanted | {t})
        return hits + max(
            best(t + 1, frozenset(kept))
            for size in range(min(budget - 1, len(present)) + 1)
            for kept in itertools.combinations(present, size)
        )

    return best(0, frozenset())


def _smallest_loss():
    """First attention matrix on which Belady's rule, one key retained, retains less than another.

    A key is needed by a row that gives it any attention. Returns the instance and its number.
    """
    number = 0
    for tokens in (3, 4):
        for rows in matrices(tokens, 2):
            number += 1
            kept, total, tie = None, 0, False
            for t in range(tokens):
                total += rows[t, t] + (rows[t, kept] if kept is not None else 0)
                needs = {j: _next(rows, j, t) for j in ({t} if kept is None else {t, kept})}
                kept = min(needs, key=needs.get)
                tie |= len(set(needs.values())) < len(needs) and min(needs.values()) < tokens
            best, choice = _best_single(rows)
            if not tie and total < best:
                return {
                    "attention rows": [(row[: i + 1] / 2).tolist() for i, row in enumerate(rows)],
                    "budget": "2: the query's own key and one more",
                    "retained by Belady's rule": total / 2,
                    "retained at best": best / 2,
                    "key retained after each row at best": [j + 1 for j in choice],
                }, number
    return None, number


def _next(rows, j, t):
    later = np.flatnonzero(rows[t + 1 :, j])
    return int(later[0]) if later.size else len(rows)


def _best_single(rows):
    """Best total and the key retained after each row, one key retained, none ever fetched back."""
    tokens = len(rows)
    options = [(rows[0, 0], (0,))]
    for t in range(1, tokens):
        options = [
            (total + rows[t, t] + rows[t, keys[-1]], (*keys, kept))
            for total, keys in options
            for kept in (keys[-1], t)
        ]
    return max(options, key=lambda option: option[0])
