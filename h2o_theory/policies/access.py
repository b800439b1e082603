"""When soft attention counts as an access, for policies that were made for hard ones.

Every softmax row touches every key, so LRU, LFU and Belady's rule need a rule of what an access
is. A token's own arrival is one under every rule; besides, a key is accessed when its weight in
a row over n visible entries is

============  ==============================  ===================
rule          at least                        default ``level``
============  ==============================  ===================
``uniform``   1 / n, its fair share           (none)
``relative``  ``level`` times the row's max   0.01
``top_m``     the ``level``-th largest weight  8
``absolute``  ``level``                       0.01
============  ==============================  ===================

and not zero.
"""

import numpy as np
from numba import njit

from h2o_theory.errors import BadArgument

__all__ = ["ACCESS_RULES", "access_settings", "is_access", "least_access", "settle_access"]

ACCESS_RULES = ("uniform", "relative", "top_m", "absolute")
_LEVELS = {"uniform": None, "relative": 0.01, "top_m": 8.0, "absolute": 0.01}
_SLACK = 1.0 - 1e-9
_TINY = 1e-300


@njit(cache=True, nogil=True)
def is_access(weight, visible, own):
    """Whether ``weight`` of a row over ``visible`` entries is an access; ``own``: key is query.

    The rule is ``uniform``. The comparison allows a relative 1e-9, so that a row which is uniform
    up to rounding counts as accessing all of its keys rather than an arbitrary subset.
    """
    return own or weight >= _SLACK / visible


@njit(cache=True, nogil=True)
def least_access(rule, level, row, n):
    """The weight from which a key of ``row[:n]`` is accessed; ``rule`` indexes ACCESS_RULES."""
    if rule == 0.0:
        return _SLACK / n
    if rule == 1.0:
        return max(_SLACK * level * row[:n].max(), _TINY)
    if rule == 2.0:
        return max(_mth_largest(row, n, min(int(level), n)), _TINY)
    return level


@njit(cache=True, nogil=True)
def _mth_largest(row, n, m):
    """By m searches for the next smaller value: numba needs seconds to compile a sort."""
    bound, found = np.inf, 0
    while found < m:
        largest = -np.inf
        for i in range(n):
            if row[i] < bound and row[i] > largest:
                largest = row[i]
        for i in range(n):
            found += row[i] == largest
        bound = largest
    return bound


def access_settings(policy):
    """``[rule, level]`` of a policy with the parameters ``access`` and ``level``."""
    return [float(ACCESS_RULES.index(policy.access)), float(policy.level or 0.0)]


def settle_access(policy):
    """Give ``level`` of ``policy`` the default of its rule ``access``, so that results name it.

    Raises BadArgument unless the two can be used together.
    """
    access, level = policy.access, policy.level
    usable = access in ACCESS_RULES and (level is None or (level > 0 and access != "uniform"))
    if usable and level is not None:
        usable = level == int(level) if access == "top_m" else level <= 1
    if not usable:
        raise BadArgument(
            "there is no such access rule",
            where=f"{policy.name}:access",
            got=f"access={access}, level={level}",
            expected="uniform; relative or absolute with a level up to 1; top_m with a whole level",
        )
    if level is None:
        object.__setattr__(policy, "level", _LEVELS[access])  # it is frozen for everyone else
