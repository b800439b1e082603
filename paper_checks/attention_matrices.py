"""Every small causal attention matrix with entries in halves, thirds, ..."""

import itertools

import numpy as np

__all__ = ["matrices"]


def matrices(n, parts):
    """All causal matrices [n, n] of non-negative integers whose rows sum to ``parts``."""
    rows = []
    for i in range(1, n + 1):
        entries = itertools.product(range(parts + 1), repeat=i)
        rows.append([row + (0,) * (n - i) for row in entries if sum(row) == parts])
    for chosen in itertools.product(*rows):
        yield np.array(chosen)
