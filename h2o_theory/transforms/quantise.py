"""Asymmetric uniform quantisation by groups, as stored and read back."""

import numpy as np

__all__ = ["group_bits", "quantise"]


def quantise(numbers, bits, axis, group):
    r"""Round numbers to ``2**bits`` even levels between the extremes of each group.

    .. math:: \hat x = z + s \cdot \mathrm{round}((x - z) / s), \quad z = \min x, \quad
              s = (\max x - \min x) / (2^{bits} - 1)

    over groups of ``group`` consecutive numbers along ``axis`` (the last one may be shorter); s and
    z are rounded to half precision, as they are stored.

    Parameters
    ----------
    numbers : array
    bits : int
    axis, group : int

    Returns
    -------
    array like ``numbers``, float64
        O(size) time.
    """
    moved = np.moveaxis(np.asarray(numbers, dtype=np.float64), axis, -1)
    result = np.empty(moved.shape)
    levels = 2**bits - 1
    for start in range(0, moved.shape[-1], group):
        part = moved[..., start : start + group]
        low = part.min(axis=-1, keepdims=True).astype(np.float16).astype(np.float64)
        step = (part.max(axis=-1, keepdims=True) - low) / levels
        step = step.astype(np.float16).astype(np.float64)
        code = np.rint(np.divide(part - low, step, out=np.zeros(part.shape), where=step > 0))
        result[..., start : start + group] = low + step * np.clip(code, 0, levels)
    return np.moveaxis(result, -1, axis)


def group_bits(bits, group):
    """Bits of one number, its share of the group's two half-precision numbers included."""
    return bits + 2 * 16 / group
