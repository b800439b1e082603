"""Which keys a row may see, read off the mask that the model really used."""

import numpy as np

from h2o_theory.errors import RecordingRefused

__all__ = ["visible_intervals"]

BLOCK_ROWS = 256
"""Rows of a mask looked at together, so that no second T x T array appears."""


def visible_intervals(mask, queries, keys, *, implicit_causal):
    r"""Visible interval :math:`[lo_i, hi_i)` of each query row of one attention call.

    Parameters
    ----------
    mask : torch.Tensor or None
        [1, 1, queries, >= keys]: boolean (true = visible) or additive (0 = visible, the most
        negative number or -inf = hidden).
    queries, keys : int
        Query rows of the call and keys in the buffer.
    implicit_causal : bool
        Whether the inner attention masks the future by itself when there is no mask. Then row i
        of several sees keys 0..i (aligned with the first key); a single row sees every key.

    Returns
    -------
    lo, hi : int32 arrays [queries]

    Raises
    ------
    RecordingRefused
        If the mask is not one interval per row, differs between heads, adds a bias, hides every
        key of a row, or if there is no mask at all and nothing else hides the future.

    Notes
    -----
    O(queries x keys) time, O(256 x keys) additional memory.
    """
    if mask is None:
        if queries > 1 and not implicit_causal:
            raise RecordingRefused(
                "the attention ran without a mask and sees the future",
                expected="a causal language model",
            )
        lo = np.zeros(queries, dtype=np.int32)
        hi = np.arange(1, queries + 1) if queries > 1 else np.array([keys])
        return lo, hi.astype(np.int32)
    if mask.ndim != 4 or mask.shape[:3] != (1, 1, queries) or mask.shape[3] < keys:
        raise RecordingRefused(
            "the attention mask has an unexpected shape",
            got=tuple(mask.shape),
            expected=(1, 1, queries, keys),
        )
    lo = np.empty(queries, dtype=np.int32)
    hi = np.empty(queries, dtype=np.int32)
    for start in range(0, queries, BLOCK_ROWS):
        stop = min(start + BLOCK_ROWS, queries)
        seen = _seen(mask[0, 0, start:stop, :keys])
        lo[start:stop], hi[start:stop] = _intervals(seen, start)
    return lo, hi


def _seen(block):
    """Boolean array of a block of the mask, true where the key is visible."""
    import torch

    if block.dtype == torch.bool:
        return block.cpu().numpy()
    hidden = block <= torch.finfo(block.dtype).min / 2
    if not bool((hidden | (block == 0)).all()):
        raise RecordingRefused(
            "the attention mask adds a bias to the logits, which a trace cannot hold",
            expected="a mask that only shows or hides keys",
        )
    return (~hidden).cpu().numpy()


def _intervals(seen, first_row):
    keys = seen.shape[1]
    lo = seen.argmax(axis=1)
    hi = keys - seen[:, ::-1].argmax(axis=1)
    empty, gapped = ~seen.any(axis=1), seen.sum(axis=1) != hi - lo
    for bad, what, hint in (
        (empty, "a row sees no key at all", "Record without padding"),
        (gapped, "the keys a row sees are not one interval", "Record one sequence at a time"),
    ):
        if bad.any():
            raise RecordingRefused(what, where=f"row {first_row + int(bad.argmax())}", hint=hint)
    return lo, hi
