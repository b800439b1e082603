"""One layer of the closed loop: the keys and values it still holds, and attention over them."""

import numpy as np
import torch
from numba import njit

from h2o_theory.errors import BadArgument
from h2o_theory.live.slots import SlotLogits

__all__ = ["Arithmetic", "LiveLayer", "Scratch"]


class Arithmetic:
    """How a layer turns queries and keys into logits.

    Attributes
    ----------
    scaling : float
    softcap : float or None
    sinks : torch.Tensor [q_heads] or None
        A logit per query head that joins the softmax and belongs to no key.
    rotation : KeyRotation or None
        Moves keys along the sequence; given, positions count within the cache.
    """

    def __init__(self, scaling, softcap=None, sinks=None, rotation=None):
        self.scaling, self.softcap, self.sinks = scaling, softcap, sinks
        self.rotation = rotation

    def logits(self, queries, keys):
        """Logits [h, G, B, m], float32, of queries [h, G, B, d] and keys [h, m, d]."""
        product = queries.float() @ keys.float().transpose(1, 2).unsqueeze(1)
        product *= self.scaling
        return self.cap(product)

    def cap(self, logits):
        """Logits under the model's soft limit, if it has one."""
        return logits if self.softcap is None else self.softcap * torch.tanh(logits / self.softcap)


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
        self.all_keys = None

    def extend(self, keys, values, start):
        """Append the keys and values [h, B, d] of the positions from ``start``."""
        if self.chooser.raw:
            past = [] if self.all_keys is None else [self.all_keys]
            self.all_keys = torch.cat([*past, keys], dim=1)
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
    O(T (k + B) d) time and O(G B (T + k)) memory for each kv_head; O(T^2 d) time and all T keys
    if a chooser looks at raw rows.
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
            self.units = _units(self._choosers(key.shape[0]), key.shape[0])
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
        stop, positions = start + queries.shape[2], unit.positions
        arrived = positions <= np.arange(start, stop)[:, None]
        allowed = arrived & (positions >= lo[:, None])
        if arithmetic.rotation is None:
            logits = arithmetic.logits(queries, unit.keys)
            if unit.chooser.raw:
                self._show_raw(unit, queries, start, lo, arithmetic, sinks)
            else:
                self._show(unit, logits, allowed, start, sinks)
        else:
            logits = self._slot_rows(unit, queries, allowed, start, arithmetic, sinks)
        seen = unit.chooser.visible(positions, start, stop) & allowed
        hidden = torch.from_numpy(~seen).to(logits.device)
        logits.masked_fill_(hidden, -torch.inf)
        if sinks is not None:
            column = sinks.float()[:, :, None, None].expand(*logits.shape[:3], 1)
            logits = torch.cat([logits, column], dim=-1)
        weights = torch.softmax(logits, dim=-1)[..., : len(positions)]
        return weights @ unit.values.float().unsqueeze(1)

    def _slot_rows(self, unit, queries, allowed, start, arithmetic, sinks):
        """Logits [h, G, B, m] with keys at their slot: what a row evicts moves them for the next,
        so each row is decided before the next is computed."""
        positions = unit.positions
        slots = SlotLogits(
            queries, unit.keys, positions, start, arithmetic.rotation, arithmetic.scaling
        )
        logits = torch.empty((*queries.shape[:3], len(positions)), dtype=torch.float32)
        for b in range(queries.shape[2]):
            held = unit.chooser.visible(positions, start + b, start + b + 1)[0]
            logits[:, :, b] = arithmetic.cap(torch.from_numpy(slots.row(b, held)))
            seen = allowed[b : b + 1] & held
            self._show(unit, logits[:, :, b : b + 1], seen, start + b, sinks)
        return logits.to(queries.device)

    def _show(self, unit, logits, allowed, start, sinks):
        """Let the chooser see rows over what is held, and decide."""
        rows, share = np.zeros((1, logits.shape[2], 0)), None
        if unit.chooser.needs_rows:
            rows = self._scratch.rows(logits.shape[0] * logits.shape[1], logits.shape[2])
            share = _softmax_rows(logits, allowed, unit.positions, sinks, rows)
        unit.chooser.advance(rows, start, share)

    def _show_raw(self, unit, queries, start, lo, arithmetic, sinks):
        """Let the chooser see rows over every past key, evicted ones included."""
        every = np.arange(start + queries.shape[2])
        causal = every <= every[start:, None]
        rows = self._scratch.rows(queries.shape[0] * queries.shape[1], queries.shape[2])
        logits = arithmetic.logits(queries, unit.all_keys)
        share = _softmax_rows(logits, causal & (every >= lo[:, None]), every, sinks, rows)
        unit.chooser.advance(rows, start, share)


def _units(choosers, kv_heads):
    """The units of a layer; raises BadArgument unless they serve every kv_head once."""
    heads = sorted(head for served, _ in choosers for head in served)
    if heads != list(range(kv_heads)):
        raise BadArgument(
            "the choosers of a layer serve other kv_heads than it has",
            where="choosers",
            got=heads,
            expected=f"0 to {kv_heads - 1}, each once",
        )
    return [_Unit(*pair) for pair in choosers]


def _softmax_rows(logits, allowed, positions, sinks, rows):
    """Write the softmax of logits [h, G, B, m] over the allowed keys to rows [h G, B, T], where a
    policy looks for them.

    In float64, so that a policy that sees a row renormalised over the part that its chunk has not
    evicted yet sees it exactly, unless that part lies 700 below the rest. Returns the share of the
    sinks [h, G], float64 [h G, B], or None.
    """
    logits = logits.flatten(0, 1).cpu().numpy()
    resting = np.full(len(logits), -np.inf)
    if sinks is not None:
        resting[:] = sinks.double().flatten().cpu().numpy()
    share = np.empty(logits.shape[:2])
    _scattered_softmax(logits, allowed, positions, resting, rows, share)
    return None if sinks is None else share


@njit(cache=True, nogil=True, error_model="numpy")
def _scattered_softmax(logits, allowed, positions, sinks, out, share):
    """Softmax of each row, column i of it written to column ``positions[i]`` of ``out``."""
    weights = np.empty(positions.size)
    for g in range(logits.shape[0]):
        for b in range(logits.shape[1]):
            largest = sinks[g]
            for i in range(positions.size):
                if allowed[b, i]:
                    largest = max(largest, np.float64(logits[g, b, i]))
            share[g, b] = np.exp(sinks[g] - largest)
            mass = share[g, b]
            for i in range(positions.size):
                weights[i] = np.exp(logits[g, b, i] - largest) if allowed[b, i] else 0.0
                mass += weights[i]
            share[g, b] /= mass
            for i in range(positions.size):
                out[g, b, positions[i]] = weights[i] / mass
