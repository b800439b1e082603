"""Which keys a row may see, read off the mask that the model really used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from h2o_theory.dependencies import require
from h2o_theory.errors import RecordingRefused

if TYPE_CHECKING:
    import torch

__all__ = ["Seen", "read_mask"]

BLOCK_ROWS = 256
"""Rows of a mask looked at together, so that no second T x T array appears."""


@dataclass(frozen=True)
class Seen:
    """What the query rows of a batch see, in columns of the key buffer: int64 arrays [batch, n].

    Attributes
    ----------
    first, last : array
        The first and the last visible column; both 0 where nothing is visible.
    count : array
        Visible columns, so that a gap shows as ``count < last - first + 1``.
    """

    first: np.ndarray
    last: np.ndarray
    count: np.ndarray


def read_mask(
    mask: torch.Tensor | None,
    shape: tuple[int, int, int],
    *,
    inner: str,
    causal: bool,
    window: int | None = None,
) -> Seen:
    r"""What each query row of one attention call sees.

    Parameters
    ----------
    mask : torch.Tensor or None
        [batch or 1, 1, n, >= keys]: boolean (true = visible) or additive (0 = visible, the most
        negative number or -inf = hidden). For flash attention [batch, keys], true = no padding.
    shape : (batch, n, keys)
        Of the call: sequences, query rows, columns of the key buffer.
    inner : str
        The implementation that does the work. Without a mask, sdpa shows row i of several the
        columns 0..i, flash shows row i the columns up to keys - n + i, and a single row sees
        all.
    causal : bool
        Whether the inner attention hides the future by itself.
    window : int, optional
        Sliding window that flash attention applies by itself; the others have it in the mask.

    Returns
    -------
    Seen

    Raises
    ------
    RecordingRefused
        If the mask differs between heads, adds a bias, or if there is no mask at all and nothing
        else hides the future.

    Notes
    -----
    O(batch n keys) time on the mask's own device, O(256 batch keys) additional memory.
    """
    batch, rows, keys = shape
    if inner.startswith("flash"):
        return _flash(mask, shape, causal, window)
    if mask is None:
        if rows > 1 and not (inner == "sdpa" and causal):
            raise _future_visible()
        last = np.arange(rows) if rows > 1 else np.array([keys - 1])
        last = np.broadcast_to(last, (batch, rows))
        return Seen(np.zeros_like(last), last, last + 1)
    expected = (mask.shape[0] if mask.ndim else 0, 1, rows)
    if mask.ndim != 4 or mask.shape[0] not in (1, batch) or mask.shape[:3] != expected:
        raise _bad_shape(mask, (batch, 1, rows, keys))
    if mask.shape[3] < keys:
        raise _bad_shape(mask, (batch, 1, rows, keys))
    blocks = [
        _reduce(mask[:, 0, start : start + BLOCK_ROWS, :keys])
        for start in range(0, rows, BLOCK_ROWS)
    ]
    parts = [np.concatenate(part, axis=1) for part in zip(*blocks, strict=True)]
    return Seen(*(np.broadcast_to(part, (batch, rows)) for part in parts))


def _reduce(block):
    """First and last visible column and their number, [batch, rows] each."""
    torch = require("torch")
    if block.dtype != torch.bool:
        hidden = block <= torch.finfo(block.dtype).min / 2
        if not bool((hidden | (block == 0)).all()):
            raise RecordingRefused(
                "the attention mask adds a bias to the logits, which a trace cannot hold",
                expected="a mask that only shows or hides keys",
            )
        block = ~hidden
    seen = block.to(torch.uint8)
    count = seen.sum(dim=-1, dtype=torch.int64)
    first = seen.argmax(dim=-1)
    last = seen.shape[-1] - 1 - seen.flip(-1).argmax(dim=-1)
    last = torch.where(count > 0, last, 0)
    return tuple(part.cpu().numpy() for part in (first, last, count))


def _flash(mask, shape, causal, window):
    """Flash attention takes no dense mask: the newest row is aligned with the last column."""
    batch, rows, keys = shape
    if rows > 1 and not causal:
        raise _future_visible()
    real = np.ones((batch, keys), dtype=bool)
    if mask is not None:
        if mask.shape != (batch, keys):
            raise _bad_shape(mask, (batch, keys))
        real = mask.cpu().numpy().astype(bool)
    before = np.cumsum(np.pad(real, ((0, 0), (1, 0))), axis=1)
    column = np.arange(keys - rows, keys)
    last = np.broadcast_to(column, (batch, rows))
    first = np.broadcast_to(real.argmax(axis=1)[:, None], (batch, rows))
    if window is not None:
        first = np.maximum(first, last - window + 1)
    count = np.take_along_axis(before, last + 1, 1) - np.take_along_axis(before, first, 1)
    count = np.where(real[:, column], count, 0)
    return Seen(*(np.where(count > 0, part, 0) for part in (first, last, count)))


def _future_visible():
    return RecordingRefused(
        "the attention ran without a mask and sees the future",
        expected="a causal language model",
    )


def _bad_shape(mask, expected):
    return RecordingRefused(
        "the attention mask has an unexpected shape", got=tuple(mask.shape), expected=expected
    )
