"""The rows of one kv_head, made block by block and shared by everything that replays on it."""

from typing import NamedTuple

import numpy as np

__all__ = ["Block", "HeadRows", "rows_per_block", "sink_share"]

_BLOCK_BYTES = 2**19
"""Rows of a block up to this size stay in the processor's cache while all policies read them."""

_KEPT_BYTES = 64 * 2**20
"""Rows of a head up to this size are kept between two passes instead of made again."""


class Block(NamedTuple):
    """Some rows of a kv_head.

    Attributes
    ----------
    start : int
        The first row.
    rows : array [G, B, T]
    mean : array [B, T]
        Over the group.
    sink_share : array [G, B]
        What a sink without a key takes of each row; exactly 0 in a layer without sinks.
    """

    start: int
    rows: np.ndarray
    mean: np.ndarray
    sink_share: np.ndarray

    @property
    def stop(self):
        """The row after the last."""
        return self.start + self.rows.shape[1]


def sink_share(trace, layer, rows):
    """What sinks without a key take of ``rows`` [G, B, T] of a layer: one less their sums."""
    if trace.layer(layer).sinks is None:
        return np.zeros(rows.shape[:2])
    return 1.0 - rows.sum(axis=-1)


def rows_per_block(group, tokens):
    """How many rows [group, B, tokens] make a block: about 512 KiB, from 32 to 256 of them."""
    return min(max(_BLOCK_BYTES // (8 * group * tokens), 32), 256)


class HeadRows:
    """Iterates over the :class:`Block` s of a head; O(G x B x T) memory.

    :meth:`square` makes the whole [T, T] matrix of group means, for what needs the future; after
    it a second pass reads the means from there, and the rows too if the head is small.
    """

    def __init__(self, trace, layer, kv_head):
        self._trace, self._place = trace, (layer, kv_head)
        self.group, self.tokens = trace.layer(layer).group, trace.tokens
        self._kept = self._mean = None

    def square(self):
        """The mean rows over the group, float64 [T, T]: 8 T^2 bytes, made in a pass of its own."""
        if self._mean is None:
            keep = 8 * self.group * self.tokens**2 <= _KEPT_BYTES
            mean, kept = np.empty((self.tokens, self.tokens)), []
            for start, rows in self._blocks():
                rows.mean(axis=0, out=mean[start : start + rows.shape[1]])
                if keep:
                    kept.append((start, rows))
            self._mean, self._kept = mean, kept if keep else None
        return self._mean

    def __iter__(self):
        for start, rows in self._blocks() if self._kept is None else self._kept:
            if self._mean is None:
                mean = rows.mean(axis=0)
            else:
                mean = self._mean[start : start + rows.shape[1]]
            yield Block(start, rows, mean, sink_share(self._trace, self._place[0], rows))

    def _blocks(self):
        return self._trace.blocks(*self._place, rows_per_block(self.group, self.tokens))
