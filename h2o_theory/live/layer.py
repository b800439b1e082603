"""One layer of the closed loop: the keys and values it still holds, and attention over them."""

import numpy as np
import torch
from numba import njit

__all__ = ["Arithmetic", "LiveLayer", "Scratch"]


class Arithmetic:
    """How a layer turns queries and keys into logits.

    Attributes
    ----------
    scaling : float
    softcap : float or None
    sinks : torch.Tensor [q_heads] or None
        A logit per query head that joins the softmax and belongs to no key.
    rotate : callable (keys, delta) or None
        Moves keys along the sequence; given, positions count within the cache.
    """

    def __init__(self, scaling, softcap=None, sinks=None, rotate=None):
        self.scaling, self.softcap, self.sinks, self.rotate = scaling, softcap, sinks, rotate

    def logits(self, queries, keys):
        """Logits [h, G, B, m], float32, of queries [h, G, B, d] and keys [h, m, d]."""
        product = queries.float() @ keys.float().transpose(1, 2).unsqueeze(1)
        product *= self.scaling
        if self.softcap is not None:
            product = self.softcap * torch.tanh(product / self.softcap)
        return product


class Scratch:
    """One array of rows [h G, B, T] for all layers of a loop, made when first needed.

    Only the columns of keys that are held are ever written, and only those are read.
    """

    def __init__(self, tokens):
        self._tokens, self._flat = tokens, np.zeros(0)

    def rows(self, heads, queries):
        """A part of it, float64 [heads, queries, T], with what was there before."""
        size = heads * queries * self._tokens
        if self._flat.size < size:
            self._flat = np.zeros(size)
        return self._flat[:size].reshape(heads, queries, self._tokens)


class _Unit:
    """The kv_heads that share one retained set, and what is retained of them."""

    def __init__(self, heads, chooser):
        self.heads, self.chooser = heads, chooser
        self.positions = np.zeros(0, dtype=np.int64)
        self.keys = self.values = None

    def extend(self, keys, values, start):
        """Append the keys and values [h, B, d] of the positions from ``start``."""
        if self.keys is not None:
            keys = torch.cat([self.keys, keys], dim=1)
            values = torch.cat([self.values, values], dim=1)
        self.keys, self.values = keys, values
        arrived = np.arange(start, start + keys.shape[1] - len(self.positions))
        self.positions = np.concatenate([self.positions, arrived])

    def shrink(self, stop):
        """Drop what the query at ``stop`` no longer sees."""
        kept = np.flatnonzero(self.chooser.kept(self.positions, stop))
        if len(kept) < len(self.positions):
            self.positions = self.positions[kept]
            index = torch.from_numpy(kept).to(self.keys.device)
            self.keys = self.keys.index_select(1, index)
            self.values = self.values.index_select(1, index)


class LiveLayer:
    """The KV cache of one layer, shrunk as its choosers decide.

    Queries are worked off in chunks of B. For a chunk, logits are taken over what is still held
    and the chunk's own keys; the chooser then decides, row after row, what each query sees, and
    the output is the softmax over just that. No key that an earlier query evicted has any
    influence, and since a masked softmax is the renormalised one, the result does not depend on B.

    Parameters
    ----------
    choosers : callable (kv_heads) -> list of (tuple of int, chooser)
        The kv_heads that share a retained set, and what decides about it; asked once, when the
        model shows how many kv_heads the layer has.
    chunk : int
        Queries worked off together. With B = 1 nothing but the visible keys is ever held.
    scratch : Scratch
        Of a sequence of T tokens.

    Notes
    -----
    O(T (k + B) d) time and O(G B (T + k)) memory for each kv_head.
    """

    def __init__(self, choosers, chunk, scratch):
        self._choosers, self.units = choosers, ()
        self._chunk, self._scratch = chunk, scratch
        self.seen, self.peak_bytes = 0, 0

    def held_bytes(self):
        """Bytes of the keys and values held now."""
        tensors = [part for unit in self.units for part in (unit.keys, unit.values)]
        return sum(part.numel() * part.element_size() for part in tensors if part is not None)

    def attend(self, query, key, value, lo, arithmetic):
        """Attention of the next n queries over the keys that they may see.

        Parameters
        ----------
        query : torch.Tensor [q_heads, n, d]
        key, value : torch.Tensor [kv_heads, n, d], [kv_heads, n, dv]
            Of the same n positions, after rotary embedding, not repeated for the group.
        lo : int array [n]
            The first key that the model itself lets each query see (sliding windows).
        arithmetic : Arithmetic

        Returns
        -------
        torch.Tensor [n, q_heads, dv]
        """
        if not self.units:
            self.units = [_Unit(*pair) for pair in self._choosers(key.shape[0])]
        rows, group = query.shape[1], query.shape[0] // key.shape[0]
        output = torch.empty(
            (rows, query.shape[0], value.shape[2]), dtype=query.dtype, device=query.device
        )
        grouped = query.unflatten(0, (key.shape[0], group))
        for first in range(0, rows, self._chunk):
            last = min(first + self._chunk, rows)
            start = self.seen
            for unit in self.units:
                heads = list(unit.heads)
                unit.extend(key[heads, first:last], value[heads, first:last], start)
                self.peak_bytes = max(self.peak_bytes, self.held_bytes())
                chosen = grouped[heads, :, first:last]
                if len(heads) == 1:
                    unit.chooser.arrive(
                        start,
                        chosen[0],
                        key[heads[0], first:last],
                        value[heads[0], first:last],
                        arithmetic.scaling,
                    )
                columns = [head * group + g for head in heads for g in range(group)]
                sinks = None
                if arithmetic.sinks is not None:
                    sinks = arithmetic.sinks.detach()[columns].unflatten(0, (len(heads), group))
                part = self._attend_chunk(unit, chosen, start, lo[first:last], arithmetic, sinks)
                output[first:last, columns] = part.flatten(0, 1).transpose(0, 1).to(output.dtype)
                unit.shrink(start + last - first)
            self.seen += last - first
        return output

    def _attend_chunk(self, unit, queries, start, lo, arithmetic, sinks):
        """Outputs [h, G, B, dv] of a chunk of queries [h, G, B, d] that begins at ``start``."""
        stop = start + queries.shape[2]
        positions, keys = unit.positions, unit.keys
        if arithmetic.rotate is not None:
            # Entry i of m is to lie m - 1 - i before the query, as in a cache without gaps.
            gap = stop - 1 - positions - np.arange(len(positions) - 1, -1, -1)
            keys = arithmetic.rotate(keys, torch.from_numpy(gap).to(keys.device))
        logits = arithmetic.logits(queries, keys)
        arrived = positions <= np.arange(start, stop)[:, None]
        allowed = arrived & (positions >= lo[:, None])
        if unit.chooser.needs_rows:
            rows = self._scratch.rows(queries.shape[0] * queries.shape[1], stop - start)
            share = _full_rows(logits, allowed, positions, sinks, rows)
            unit.chooser.advance(rows, start, share)
        else:
            unit.chooser.advance(np.zeros((1, stop - start, 0)), start)
        seen = unit.chooser.visible(positions, start, stop) & allowed
        hidden = torch.from_numpy(~seen).to(logits.device)
        logits.masked_fill_(hidden, -torch.inf)
        if sinks is not None:
            column = sinks.float()[:, :, None, None].expand(*logits.shape[:3], 1)
            logits = torch.cat([logits, column], dim=-1)
        weights = torch.softmax(logits, dim=-1)[..., : len(positions)]
        return weights @ unit.values.float().unsqueeze(1)


def _full_rows(logits, allowed, positions, sinks, rows):
    """Write rows [h G, B, T] proportional to the softmax, where a policy looks for them.

    Each row is scaled by its largest logit among what is held or arrives with the chunk; a
    policy sees it renormalised over S_t, so that the scale cancels. In float64 that is exact
    unless all of S_t lies 700 below an entry evicted in the same chunk. Returns what the sinks
    [h, G] have in the same measure, float64 [h G, B], or None.
    """
    exact = logits.flatten(0, 1).double()
    exact.masked_fill_(torch.from_numpy(~allowed).to(exact.device), -torch.inf)
    largest = exact.amax(dim=-1, keepdim=True)
    exact -= largest
    _scatter(exact.exp_().cpu().numpy(), positions, rows)
    if sinks is None:
        return None
    share = (sinks.double().flatten()[:, None] - largest[:, :, 0]).exp()
    return np.ascontiguousarray(share.cpu().numpy())


@njit(cache=True, nogil=True)
def _scatter(values, positions, out):
    """Write column i of ``values`` to column ``positions[i]`` of ``out``."""
    for g in range(values.shape[0]):
        for b in range(values.shape[1]):
            for i in range(positions.size):
                out[g, b, positions[i]] = values[g, b, i]
