"""The passes over all nodes that a shortest-path search is made of, written to vectorise.

A node v is at distance ``pending[v] - reach[v]``, its potential less the largest gain found to it.
"""

import numpy as np
from numba import njit

__all__ = ["CHUNK", "SETTLED", "holds", "nearest_distance", "relax"]

SETTLED = np.int64(1) << 62
# The search for nodes at the nearest distance looks at this many at once: a vectorised "any of
# these?" and a scalar look only where the answer is yes (1.5 times quicker overall at T = 1024).
CHUNK = 64


@njit(cache=True, nogil=True, error_model="numpy")
def relax(sums, base, token, reach, parent):
    """Offer each node the gain ``base + sums`` through ``token``. No branch, so it vectorises."""
    for q in range(reach.size):
        offer = base + sums[q]
        better = offer > reach[q]
        reach[q] = offer if better else reach[q]
        parent[q] = token if better else parent[q]


@njit(cache=True, nogil=True, error_model="numpy")
def nearest_distance(pending, reach):
    """Smallest distance of the nodes that are not settled."""
    nearest = pending[0] - reach[0]
    for q in range(reach.size):
        nearest = min(nearest, pending[q] - reach[q])
    return nearest


@njit(cache=True, nogil=True, error_model="numpy")
def holds(pending, reach, distance):
    """Whether some node lies at ``distance``."""
    found = False
    for q in range(reach.size):
        found |= pending[q] - reach[q] == distance
    return found
