"""The swap rule (D.20) on one fixed function, with every way to break ties, and an instance on
which it forgets what it needs later."""

import itertools
import math

__all__ = ["coverage_values", "forgetful_instance", "swap_run"]

SHARE = 1 - 1 / math.e
TOKENS = {1: "ae", 2: "bf", 3: "ab", 4: "cg", 5: "dh", 6: "cd"}
"""Points that each token covers, in order of arrival. 3 nearly covers 1 and 2, 6 nearly 4 and 5."""


def swap_run(values, k):
    """Every run of the swap rule: tokens 1 .. n arrive, and of S + newcomer the worst v leaves.

    Parameters
    ----------
    values : sequence of numbers [2**n]
        f by bit mask.
    k : int

    Yields
    ------
    list of int
        The caches S_1 .. S_n as masks, for each way to break ties.
    """
    n = len(values).bit_length() - 1

    def extend(caches):
        i = len(caches)
        if i == n:
            yield caches
            return
        grown = (caches[-1] if caches else 0) | 1 << i
        if grown.bit_count() <= k:
            yield from extend([*caches, grown])
            return
        left = {grown & ~(1 << v) for v in range(i + 1) if grown >> v & 1}
        top = max(values[mask] for mask in left)
        for mask in sorted(left):
            if values[mask] == top:
                yield from extend([*caches, mask])

    yield from extend([])


def coverage_values(weights, tokens):
    """Values by mask of the coverage function of ``tokens`` (token -> points)."""
    points = {token: set(covered) for token, covered in tokens.items()}
    values = []
    for mask in range(2 ** len(tokens)):
        covered = set().union(*(points[j + 1] for j in range(len(tokens)) if mask >> j & 1))
        values.append(sum(weights[point] for point in covered))
    return values


def forgetful_instance(k=2):
    """The lightest weights on which every run ends below (1-1/e) of the best two tokens, or None.

    One fixed coverage function: monotone, submodular, normalised. Token 3 is worth little beside
    1 and 2 and is turned away; then 4 and 5 replace 1 and 2, and 6 is turned away likewise; at
    the end 3 and 6 would have been best. Points e..h weigh 1.
    """
    for total in range(4, 40):
        for a, b, c in itertools.product(range(1, 10), repeat=3):
            d = total - a - b - c
            if not 1 <= d <= 9 or max(a, b) >= max(c, d) + 1:
                continue
            weights = dict(zip("abcdefgh", (a, b, c, d, 1, 1, 1, 1), strict=True))
            values = coverage_values(weights, TOKENS)
            best = max(range(len(values)), key=lambda m: (m.bit_count() == k, values[m]))
            ends = [run[-1] for run in swap_run(values, k)]
            if all(values[end] < SHARE * values[best] for end in ends):
                return {
                    "k": k,
                    "f(S)": "total weight of the points covered by S, at every step",
                    "weights of the points": weights,
                    "points of tokens 1..6": TOKENS,
                    "cache at the end": _tokens(ends[0]),
                    "f of it": values[ends[0]],
                    "best two tokens": _tokens(best),
                    "f of them": values[best],
                    "ratio": values[ends[0]] / values[best],
                }
    return None


def _tokens(mask):
    return [j + 1 for j in range(mask.bit_length()) if mask >> j & 1]
