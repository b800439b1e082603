"""When soft attention counts as an access, for policies that were made for hard ones.

Every softmax row touches every key, so LRU, LFU and Belady's rule need a rule of what an access
is. A token's own arrival is one under every rule; besides, a key is accessed when its weight in
a row over n visible entries is

============  ==================================  =======================
rule          at least                            default ``threshold``
============  ==================================  =======================
``uniform``   1 / n, its fair share               (none)
``relative``  ``threshold`` times the row's max   0.01
``top_m``     the ``threshold``-th largest weight  8
``absolute``  ``threshold``                       0.01
============  ==================================  =======================

and not zero.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from h2o_theory.errors import BadArgument

__all__ = ["ACCESS_RULES", "Access", "access_of", "is_access", "least_access", "resolve_access"]

ACCESS_RULES = ("uniform", "relative", "top_m", "absolute")
_UNIFORM, _RELATIVE, _TOP_M, _ABSOLUTE = range(len(ACCESS_RULES))
_DEFAULTS = {"uniform": None, "relative": 0.01, "top_m": 8.0, "absolute": 0.01}
_SLACK = 1.0 - 1e-9
_TINY = 1e-300


class Access(NamedTuple):
    """An access rule for compiled functions; ``rule`` is an index of ACCESS_RULES."""

    rule: int
    threshold: float


@njit(cache=True, nogil=True)
def is_access(weight, visible, own):
    """Whether ``weight`` of a row over ``visible`` entries is an access; ``own``: key is query.

    The rule is ``uniform``. The comparison allows a relative 1e-9, so that a row which is uniform
    up to rounding counts as accessing all of its keys rather than an arbitrary subset.
    """
    return own or weight >= _SLACK / visible


@njit(cache=True, nogil=True)
def least_access(access, row, n):
    """The weight from which a key of ``row[:n]`` is accessed."""
    if access.rule == _UNIFORM:
        return _SLACK / n
    if access.rule == _RELATIVE:
        return max(_SLACK * access.threshold * row[:n].max(), _TINY)
    if access.rule == _TOP_M:
        return max(_mth_largest(row, n, min(int(access.threshold), n)), _TINY)
    return access.threshold


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


def access_of(policy: Any) -> Access:
    """The rule of a policy with the parameters ``access`` and ``threshold``."""
    return Access(ACCESS_RULES.index(policy.access), float(policy.threshold or 0.0))


def resolve_access(policy: Any) -> None:
    """Give ``threshold`` of ``policy`` the default of its rule ``access``, so that results name it.

    Raises BadArgument unless the two can be used together.
    """
    access, threshold = policy.access, policy.threshold
    usable = access in ACCESS_RULES and (
        threshold is None or (threshold > 0 and access != "uniform")
    )
    if usable and threshold is not None:
        usable = threshold == int(threshold) if access == "top_m" else threshold <= 1
    if not usable:
        raise BadArgument(
            "access must be uniform, relative or absolute with a threshold up to 1, or top_m with "
            "a whole one",
            where=policy.name,
            got=f"access={access}, threshold={threshold}",
        )
    if threshold is None:
        # It is frozen for everyone else.
        object.__setattr__(policy, "threshold", _DEFAULTS[access])
