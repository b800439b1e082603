"""Queries, keys and values of one kv_head, for the policies that look at them."""

from dataclasses import dataclass

import numpy as np

from h2o_theory.errors import BadArgument

__all__ = ["TENSORS", "Tensors", "require"]

TENSORS = ("queries", "unrotated", "keys", "values")
"""What a policy's ``needs`` may name beside ``rows``."""


@dataclass(frozen=True)
class Tensors:
    """What a policy's ``needs`` names of one kv_head, float64; None where it is not needed.

    Attributes
    ----------
    queries : array [G, T, d] or None
        Of the query heads that share the kv_head, after rotary embedding.
    unrotated : array [G, T, d] or None
        The same before rotary embedding.
    keys : array [T, d] or None
        After rotary embedding.
    values : array [T, dv] or None
    scaling : float
        The factor on the logits.
    rotary : tuple (theta, width) or None
        Base of the frequencies and rotated coordinates, beside ``unrotated``; None without.
    """

    queries: np.ndarray | None = None
    unrotated: np.ndarray | None = None
    keys: np.ndarray | None = None
    values: np.ndarray | None = None
    scaling: float = 1.0
    rotary: tuple | None = None


def require(policy, tensors):
    """Raise BadArgument unless ``tensors`` (or None) holds all that ``policy`` needs."""
    for kind in TENSORS:
        if kind in policy.needs.split() and getattr(tensors, kind, None) is None:
            raise BadArgument(
                f"the policy needs {kind}, which were not handed over",
                where=policy.name,
                expected=f"a context whose tensors hold {policy.needs}",
            )
