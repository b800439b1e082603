"""One sequence of a recording: its rows are checked, brought to storage form and gathered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from h2o_theory.attention import attention_rows
from h2o_theory.recorder.buffer import SegmentBuffer, as_numpy, to_storage
from h2o_theory.recorder.call import require_finite
from h2o_theory.recorder.selfcheck import SelfCheck

if TYPE_CHECKING:
    from h2o_theory.recorder.call import Call
    from h2o_theory.recorder.settings import Settings

__all__ = ["PACK_ROWS", "RecordedSequence", "packed_rows"]

PACK_ROWS = 256
"""Attention rows computed together when rows are stored instead of queries and keys."""


class RecordedSequence:
    """Collects the calls of one sequence and hands segments on.

    Parameters
    ----------
    settings : Settings
    emit : callable (tensors, start, stop, layers, dtypes)
        Where finished segments go.

    Attributes
    ----------
    token_ids : list of int
    prompt_length : int
        Tokens of the first pass.
    checks : SelfCheck
    """

    def __init__(self, settings: Settings, emit: Callable[..., None]) -> None:
        self.token_ids, self.prompt_length = [], 0
        self._settings = settings
        # Rows are computed from the tensors as captured, so those are what is checked.
        rows = settings.store == "attention"
        self._dtype = settings.model_dtype if rows else settings.store_dtype
        self.checks = SelfCheck(settings.model_dtype, self._dtype, settings.check_rows)
        self._buffer = SegmentBuffer(emit, settings.store_dtype)

    def add(self, call: Call) -> None:
        """Bring a call of this sequence to storage form, check that, and keep its new rows."""
        parts = {"q": call.query, "k": call.new(call.key), "v": call.new(call.value)}
        stored = {kind: to_storage(part, self._dtype) for kind, part in parts.items()}
        require_finite(call.layer, stored, self._dtype)
        self.checks.check(call, stored)
        if self._settings.store == "attention":
            self._add_attention(call, stored["v"])
            return
        arrays = {kind: as_numpy(stored[kind]) for kind in self._settings.store}
        arrays |= {"lo": call.lo, "hi": call.hi}
        self._buffer.add(call.layer, call.start, call.stop, arrays)

    def _add_attention(self, call, values):
        import torch

        values = to_storage(values, self._settings.store_dtype)
        require_finite(call.layer, {"v": values}, self._settings.store_dtype)
        values = as_numpy(values)
        for start in range(call.start, call.stop, PACK_ROWS):
            stop = min(start + PACK_ROWS, call.stop)
            rows = torch.from_numpy(packed_rows(call, start, stop))
            rows = to_storage(rows, self._settings.store_dtype)
            part = values[:, start - call.start : stop - call.start]
            self._buffer.add(call.layer, start, stop, {"p": as_numpy(rows), "v": part})

    def flush(self) -> None:
        """Hand on what is still buffered."""
        self._buffer.flush()


def packed_rows(call: Call, start: int, stop: int) -> np.ndarray:
    """Attention rows ``start .. stop`` of a call, float64 [q_heads, entries of their triangle].

    Row t has t + 1 entries, zero before its visible interval.
    """
    chosen = slice(start - call.start, stop - call.start)
    lo, hi = call.lo[chosen] - call.base, call.hi[chosen] - call.base
    query, key = (part.detach().to("cpu").double().numpy() for part in (call.query, call.key))
    group = len(query) // len(key)
    arithmetic, sinks = call.arithmetic, None
    packed = np.zeros((len(query), (stop * (stop + 1) - start * (start + 1)) // 2))
    for head, keys in enumerate(key):
        members = slice(head * group, (head + 1) * group)
        if arithmetic.sinks is not None:
            sinks = arithmetic.sinks[members].to("cpu").double().numpy()
        rows = attention_rows(
            query[members, chosen], keys, lo, hi, arithmetic.scaling, arithmetic.softcap, sinks
        )
        end = 0
        for index, t in enumerate(range(start, stop)):
            begin, end = end, end + t + 1
            packed[members, begin + call.base : end] = rows[:, index, : t + 1 - call.base]
    return packed
