"""What a replay asks of a trace, whatever kind of trace it is."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

__all__ = ["Recorded"]


class Recorded(Protocol):
    """A :class:`h2o_theory.Trace`, or a view of one with transformed keys and values."""

    @property
    def name(self) -> str:
        """What tables call it."""

    @property
    def trace_id(self) -> str:
        """A digest of its content."""

    @property
    def tokens(self) -> int:
        """T."""

    @property
    def layers(self) -> Sequence[int]:
        """The recorded layers."""

    @property
    def spec(self) -> Any:
        """What is said of the model."""

    def layer(self, layer: int) -> Any:
        """The shape of a layer."""

    def kv_heads(self, layer: int) -> Sequence[int]:
        """The recorded kv_heads of a layer."""

    def blocks(
        self, layer: int, kv_head: int, block_rows: int = ...
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Rows [G, B, T] of the group, block by block, each with its first row's number."""

    def has_values(self, layer: int) -> bool:
        """Whether values were recorded."""

    def values(self, layer: int, kv_head: int) -> np.ndarray:
        """Values [T, dv]."""
