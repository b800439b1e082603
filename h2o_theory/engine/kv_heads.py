"""Layers and kv_heads without a trace: what a budget rule may ask before anything is recorded."""

from dataclasses import dataclass

__all__ = ["KvHeads"]


@dataclass(frozen=True)
class KvHeads:
    """The part of a trace that a model's configuration tells, by the names that a trace has.

    A budget rule with ``needs = "kv_heads"`` takes one in place of a trace.

    Attributes
    ----------
    tokens : int
        Length T of the sequence.
    layers : tuple of int
    count : int
        kv_heads of each layer.
    """

    tokens: int
    layers: tuple
    count: int

    def kv_heads(self, layer):
        """The kv_heads of a layer, ascending."""
        return tuple(range(self.count))
