"""When soft attention counts as an access, for policies that were made for hard ones.

Every softmax row touches every key, so LRU, LFU and Belady's rule need a rule of what an access
is. The rule here is ``uniform``: a key is accessed when it receives at least its fair share of
the row, 1 / (number of entries the row sees). A token's own arrival is an access.
"""

from numba import njit

__all__ = ["is_access"]


@njit(cache=True, nogil=True)
def is_access(weight, visible, own):
    """Whether ``weight`` of a row over ``visible`` entries is an access; ``own``: key is query.

    The comparison allows a relative 1e-9, so that a row which is uniform up to rounding counts
    as accessing all of its keys rather than an arbitrary subset.
    """
    return own or weight * visible >= 1.0 - 1e-9
