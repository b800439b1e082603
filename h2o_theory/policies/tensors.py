"""Queries, keys and values of one kv_head, for the policies that look at them."""

from dataclasses import dataclass

import numpy as np

from h2o_theory.attention import rotate
from h2o_theory.errors import BadArgument

__all__ = ["TENSORS", "Rotary", "Tensors"]

TENSORS = ("queries", "keys", "values")


@dataclass(frozen=True)
class Rotary:
    """The rotary embedding that recorded queries and keys went through.

    Attributes
    ----------
    theta : float
        The base of the frequencies.
    width : int
        The coordinates that are rotated, the first ones.
    """

    theta: float
    width: int


@dataclass(frozen=True)
class Tensors:
    """What a policy's ``needs`` names of one kv_head, float64; None where it is not needed.

    Attributes
    ----------
    queries : array [G, T, d] or None
        Of the query heads that share the kv_head, after rotary embedding.
    keys : array [T, d] or None
        After rotary embedding.
    values : array [T, dv] or None
    scaling : float
        The factor on the logits.
    rotary : Rotary or None
        None for a model without rotary embedding.
    """

    queries: np.ndarray | None = None
    keys: np.ndarray | None = None
    values: np.ndarray | None = None
    scaling: float = 1.0
    rotary: Rotary | None = None

    def unrotated_queries(self):
        """The queries before rotary embedding, [G, T, d]."""
        if self.rotary is None:
            return self.queries
        back = -np.arange(self.queries.shape[1])
        return rotate(self.queries, back, self.rotary.theta, self.rotary.width)

    def upto(self, tokens):
        """The tensors of the first ``tokens`` positions."""
        cut = {
            "queries": None if self.queries is None else self.queries[:, :tokens],
            "keys": None if self.keys is None else self.keys[:tokens],
            "values": None if self.values is None else self.values[:tokens],
        }
        return Tensors(**cut, scaling=self.scaling, rotary=self.rotary)

    def require(self, policy):
        """Raise BadArgument unless all that ``policy`` needs is here."""
        for kind in TENSORS:
            if kind in policy.needs.split() and getattr(self, kind) is None:
                raise BadArgument(
                    f"the policy needs {kind}",
                    where=policy.name,
                    expected=f"a replay that hands over {' and '.join(policy.needs.split())}",
                )
