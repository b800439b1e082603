"""Logits when positions count within the cache: every eviction moves all earlier keys."""

import numpy as np
import torch
from numba import njit

__all__ = ["SlotLogits"]


class SlotLogits:
    r"""Logits of a chunk of queries, one row at a time, with keys at their place in the cache.

    Of the keys :math:`j_0 < \dots < j_{n-1} = t` that row t holds, key :math:`j_i` stands
    n - 1 - i before the query:

    .. math:: z_t(j_i) = \mathrm{scaling} \, \langle q'_t, R_{-(n-1-i)} k'_{j_i} \rangle

    with q' and k' before their rotary embedding. No two rows share the keys' rotations, so they
    are turned one by one, in a compiled loop: O(n d G) a row.

    Parameters
    ----------
    queries : torch.Tensor [h, G, B, d]
        Of the positions from ``start``, after rotary embedding.
    keys : torch.Tensor [h, m, d]
        After rotary embedding.
    positions : int array [m]
        Where the keys stand in the text, ascending.
    start : int
    rotation : KeyRotation
    scaling : float
    """

    def __init__(self, queries, keys, positions, start, rotation, scaling):
        own = np.arange(start, start + queries.shape[2])
        # One row of [B, h, G, d] is contiguous.
        self._queries = _array(rotation(queries, -own).permute(2, 0, 1, 3) * scaling)
        self._keys = _array(rotation(keys, -positions))
        self._cos, self._sin = rotation.table(len(positions))

    def row(self, b, held):
        """Logits of row b, float32 [h, G, m]; minus infinity where ``held``, bool [m], is False."""
        queries, keys = self._queries[b], self._keys
        out = np.empty((*queries.shape[:2], keys.shape[1]), dtype=np.float32)
        turned_products(queries, keys, held, self._cos, self._sin, out)
        return out


def _array(tensor):
    return np.ascontiguousarray(tensor.detach().to(torch.float32).cpu().numpy())


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def turned_products(queries, keys, held, cos, sin, out):
    """Products of queries [h, G, d] with keys [h, m, d], each turned back by the number of held
    keys after it."""
    half = cos.shape[1]
    turned = np.empty(keys.shape[2], dtype=np.float32)
    for h in range(keys.shape[0]):
        behind = 0
        for i in range(keys.shape[1] - 1, -1, -1):
            if not held[i]:
                out[h, :, i] = -np.inf
                continue
            turned[:] = keys[h, i]
            for c in range(half):
                first, second = keys[h, i, c], keys[h, i, c + half]
                turned[c] = first * cos[behind, c] + second * sin[behind, c]
                turned[c + half] = second * cos[behind, c] - first * sin[behind, c]
            for g in range(queries.shape[1]):
                product = np.float32(0.0)
                for c in range(turned.size):
                    product += queries[h, g, c] * turned[c]
                out[h, g, i] = product
            behind += 1
