"""Algorithms 1 and 2 of the paper, read line by line: plain numpy, one token at a time.

Tokens are numbered from 0 here and printed from 1 in the evidence. Every reading returns the
caches S_1 .. S_n, each a sorted tuple of at most k tokens.
"""

import numpy as np

__all__ = ["algorithm_1", "algorithm_2", "intended", "kept_mass", "masked_row"]


def masked_row(query, keys, held, *, subtract):
    r"""The row o_i of a query over the keys 0..i of which only ``held`` are not zeroed.

    .. math:: o = D^{-1} (e^{K_S q} - [\text{subtract}] 1_{[i] \setminus S}), \qquad
              D = \langle e^{K_S q} - 1_{[i] \setminus S}, 1 \rangle

    A zeroed key gives the logit 0, so e^0 = 1, which D takes off again, and o only if told to.
    """
    absent = np.ones(len(keys), dtype=bool)
    absent[list(held)] = False
    powers = np.exp(np.where(absent, 0.0, keys @ query))
    total = (powers - absent).sum()
    return (powers - absent if subtract else powers) / total


def _evict(held, value):
    """G without u = argmax over v of F(G without v); F is a sum, so the least value leaves.

    Among equals the oldest leaves, as everywhere in this project.
    """
    victim = min(held, key=lambda token: (value[token], token))
    return tuple(token for token in held if token != victim)


def algorithm_1(queries, keys, k):
    """As printed: o_i and D_i are formed with S_{i-1}, 1 is subtracted where a key is absent."""
    held, caches = (), []
    for i, query in enumerate(queries):
        grown = (*held, i)
        if i >= k:
            row = masked_row(query, keys[: i + 1], held, subtract=True)
            grown = _evict(grown, row)
        held = grown
        caches.append(held)
    return caches


def algorithm_2(queries, keys, k):
    """As printed: nothing is subtracted from o_i; scores add up, from zero, for i > k only.

    F(T) = h(sum of the scores of T) with h increasing, so the least score leaves.
    """
    held, caches = (), []
    score = np.zeros(len(keys))
    for i, query in enumerate(queries):
        grown = (*held, i)
        if i >= k:
            score[: i + 1] += masked_row(query, keys[: i + 1], held, subtract=False)
            grown = _evict(grown, score)
        held = grown
        caches.append(held)
    return caches


def intended(queries, keys, k, *, rows="all"):
    """The repair: every row is normalised over S_{i-1} and i itself, with its real key.

    ``rows``: the score is the last row (``last``, Algorithm 1), or adds up the rows i > k
    (``late``, Algorithm 2) or all of them (``all``, the accumulated attention of the text).
    """
    held, caches = (), []
    score = np.zeros(len(keys))
    for i, query in enumerate(queries):
        grown = (*held, i)
        row = masked_row(query, keys[: i + 1], grown, subtract=True)
        if rows == "last":
            score[:] = 0.0
        if rows != "late" or i >= k:
            score[: i + 1] += row
        held = _evict(grown, score) if i >= k else grown
        caches.append(held)
    return caches


def kept_mass(rows, caches):
    """Mean share of the full rows that falls on what each query sees, S_{i-1} and itself."""
    held, total = (), 0.0
    for i, cache in enumerate(caches):
        total += rows[i, [*held, i]].sum()
        held = cache
    return total / len(caches)
