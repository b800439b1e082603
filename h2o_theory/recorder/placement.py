"""Where the rows of a pass stand in their sequences, and that earlier keys stay what they were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from h2o_theory.errors import RecordingRefused

if TYPE_CHECKING:
    import torch

    from h2o_theory.recorder.visibility import Seen

__all__ = ["ANCHORS", "ONE_SEQUENCE", "History", "Placed", "place"]

ONE_SEQUENCE = "Record one batch of sequences per with-block, from their first tokens"


@dataclass(frozen=True)
class Placed:
    """The rows of one sequence in one attention call.

    Attributes
    ----------
    rows : int array [n]
        Which rows of the call belong to tokens of the sequence, ascending.
    columns : int array [m]
        Columns of the key buffer that hold tokens of the sequence up to the last row.
    base : int
        Position of the token in ``columns[0]``; above 0 once a sliding cache has dropped keys.
    start, stop : int
        Positions of the rows in the sequence, stop - start = n.
    lo, hi : int32 arrays [n]
        Row i sees the positions ``lo[i] <= j < hi[i]``, and hi[i] = start + i + 1.
    """

    rows: np.ndarray
    columns: np.ndarray
    base: int
    start: int
    stop: int
    lo: np.ndarray
    hi: np.ndarray


def place(
    where: str, seen: Seen, earlier: np.ndarray, keys: int, window: int | None
) -> tuple[int, list[Placed]]:
    """Place the rows of a call: find the padding, then each row's interval of visible keys.

    A row that sees its own key belongs to a token; one that does not is padding.

    Parameters
    ----------
    where : str
        The layer, for error messages.
    seen : Seen
    earlier : bool array [batch, fed]
        Which of the tokens fed in earlier passes, padding included, belong to a sequence.
    keys : int
        Columns of the key buffer. Without a sliding window it reaches back to the first token.
    window : int or None

    Returns
    -------
    offset : int
        Token (padding counted) in the buffer's first column.
    placed : list of Placed, one per sequence

    Raises
    ------
    RecordingRefused
        If a row sees the future, not its own key, padding, or keys that are not one interval; or
        if the buffer begins later than the window allows.
    """
    rows, fed = seen.last.shape[1], earlier.shape[1]
    position = fed + np.arange(rows)
    offset = _buffer_offset(where, seen, position, fed, keys, window)
    own = (seen.count > 0) & (seen.last + offset == position)
    everything = np.concatenate([earlier, own], axis=1)
    placed = []
    for real, row_is_real, first, count in zip(
        everything, own, seen.first, seen.count, strict=True
    ):
        rank = np.concatenate([[0], np.cumsum(real)])
        chosen = np.flatnonzero(row_is_real)
        lo, hi = rank[first[chosen] + offset], rank[position[chosen] + 1]
        _require_intervals(where, count[chosen], lo, hi)
        start = int(rank[fed])
        placed.append(
            Placed(
                rows=chosen,
                columns=np.flatnonzero(real[offset:]),
                base=int(rank[offset]),
                start=start,
                stop=start + len(chosen),
                lo=lo.astype(np.int32),
                hi=hi.astype(np.int32),
            )
        )
    return offset, placed


def _buffer_offset(where, seen, position, fed, keys, window):
    """Position of the token in the buffer's first column, found from the rows' own keys."""
    visible = seen.count > 0
    if not visible.any():
        raise RecordingRefused("no row of the call sees a key", where=where)
    offset = int((position - seen.last)[visible].min())
    if offset < 0:
        index, row = np.argwhere((seen.last > position) & visible)[0]
        raise RecordingRefused(
            "the visible keys are not those of a causal sequence",
            where=f"{where}, token {position[row]}",
            got=f"keys up to {seen.last[index, row]}",
            expected=f"{position[row]} as the last",
            hint=ONE_SEQUENCE,
        )
    allowed = 0 if window is None else max(0, fed - window + 1)
    if offset > allowed:
        raise RecordingRefused(
            "the keys do not reach back to the first recorded token",
            where=where,
            got=f"{keys} keys, the first of them at token {offset}",
            expected=f"{len(position) + fed}, one for each token so far",
            hint=ONE_SEQUENCE,
        )
    return offset


def _require_intervals(where, count, lo, hi):
    """A row past the first that sees only itself begins a packed document."""
    position = hi - 1
    for wrong, what in (
        (count != hi - lo, "the keys a row sees are not one interval of its sequence"),
        ((lo == position) & (position > 0), "a row sees only itself: a second sequence begins"),
    ):
        if wrong.any():
            row = int(wrong.argmax())
            raise RecordingRefused(
                what,
                where=f"{where}, token {position[row]}",
                got=f"{count[row]} keys from {lo[row]} to {position[row]}",
                hint=ONE_SEQUENCE,
            )


ANCHORS = 8
"""Latest earlier keys compared on each call, besides the very first: a cache that beam search
reorders, or that was rolled back, differs in one of them."""


class History:
    """The keys of a few earlier tokens of each layer, on the layer's own device."""

    def __init__(self) -> None:
        self._anchors = {}

    def check(self, layer: int, key: torch.Tensor, offset: int, stop: int) -> None:
        """Compare earlier keys with those of the calls before, bit for bit, and keep new ones.

        Parameters
        ----------
        layer : int
        key : torch.Tensor [batch, kv_heads, m, d]
            The key buffer of a call.
        offset : int
            Token in its first column; keys that a sliding cache has dropped are not compared.
        stop : int
            Tokens fed so far, this call's included.

        Raises
        ------
        RecordingRefused
            If a key differs.
        """
        if layer in self._anchors:
            positions, keys = self._anchors[layer]
            at_hand = positions >= offset
            now = key[:, :, positions[at_hand] - offset]
            then = keys[:, :, np.flatnonzero(at_hand)]
            # Padded rows may hold NaN, which differs from itself.
            if not bool(((now == then) | (then != then)).all()):
                raise RecordingRefused(
                    "the KV cache changed keys that are already recorded",
                    where=f"layer {layer}",
                    hint="Record the finished sequence again in one forward pass",
                )
        positions = np.arange(max(offset, stop - ANCHORS), stop)
        if offset == 0 and positions[0] > 0:
            positions = np.concatenate([[0], positions])
        self._anchors[layer] = positions, key[:, :, positions - offset]
