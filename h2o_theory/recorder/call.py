"""One attention call as the recorder sees it, and what makes a call unfit for a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from h2o_theory.errors import RecordingRefused, UnsupportedModel

if TYPE_CHECKING:
    import torch

    from h2o_theory.recorder.placement import Placed

__all__ = [
    "Call",
    "Heads",
    "LayerArithmetic",
    "arithmetic_of",
    "call_of",
    "cut",
    "require_finite",
    "require_options",
]

DROPPED = {
    "sdpa": {
        "softcap": "the softcap on the logits",
        "s_aux": "the attention sinks",
    },
    "flash_attention_2": {"s_aux": "the attention sinks"},
}
"""Options that an inner attention ignores, and what would be lost."""


@dataclass(frozen=True)
class LayerArithmetic:
    """How a layer turns queries and keys into attention.

    Attributes
    ----------
    scaling : float
    softcap : float or None
    sinks : torch.Tensor [q_heads] or None
        One logit per query head that joins the softmax and belongs to no key.
    window : int or None
        The sliding window that the model declared.
    """

    scaling: float
    softcap: float | None
    sinks: torch.Tensor | None
    window: int | None


@dataclass(frozen=True)
class Call:
    """The part of one attention call that concerns one sequence, padding taken out.

    Attributes
    ----------
    layer : int
    start, stop : int
        Positions of its query rows in the sequence.
    base : int
        Position of the first key; 0 unless a sliding cache has dropped some.
    query, key, value : torch.Tensor
        [q_heads, n, d], [kv_heads, m, d], [kv_heads, m, dv] with m = stop - base.
    output : torch.Tensor [n, q_heads, dv]
    lo, hi : int32 arrays [n]
        Visible interval of each row, in positions.
    inner : str
        The implementation that computed the output.
    arithmetic : LayerArithmetic
    """

    layer: int
    start: int
    stop: int
    base: int
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    output: torch.Tensor
    lo: np.ndarray
    hi: np.ndarray
    inner: str
    arithmetic: LayerArithmetic

    def new(self, tensor: torch.Tensor) -> torch.Tensor:
        """The columns of ``key`` or ``value`` that belong to this call's rows."""
        return tensor[:, self.start - self.base :]


def cut(tensor: torch.Tensor, chosen: np.ndarray, dim: int) -> torch.Tensor:
    """The entries ``chosen`` (ascending integers) along an axis; a view if they are a run."""
    first, count = int(chosen[0]), len(chosen)
    if chosen[-1] - first + 1 == count:
        return tensor.narrow(dim, first, count)
    import torch

    return tensor.index_select(dim, torch.as_tensor(chosen, device=tensor.device))


def arithmetic_of(options: Mapping[str, Any]) -> LayerArithmetic:
    """What the options of an attention call say of its arithmetic."""
    sinks = options.get("s_aux")
    return LayerArithmetic(
        scaling=float(options["scaling"]),
        softcap=options.get("softcap"),
        sinks=None if sinks is None else sinks.detach(),
        window=options.get("sliding_window"),
    )


def require_options(where: str, inner: str, options: Mapping[str, Any], device: str) -> None:
    """Refuse arithmetic that a trace does not hold, or that the inner attention would drop.

    Parameters
    ----------
    where : str
        For messages.
    inner : str
        The implementation that does the work.
    options : dict
        What the model passes to it.
    device : str
        Type of the device that the call runs on.

    Raises
    ------
    UnsupportedModel
    """
    import torch

    if torch.is_autocast_enabled(device):
        # Attention rounds queries and keys once more, on its inside, where nothing captures them.
        dtype = str(torch.get_autocast_dtype(device)).removeprefix("torch.")
        raise UnsupportedModel(
            "attention under torch.autocast computes with other numbers than it is given",
            where=where,
            hint=f"Leave autocast, or load the model in {dtype}",
        )
    if options.get("position_bias") is not None:
        raise UnsupportedModel(
            "the attention adds a position bias to its logits, which a trace does not hold",
            where=where,
        )
    for name, part in DROPPED.get(inner, {}).items():
        if options.get(name) is not None:
            raise UnsupportedModel(
                f"{inner} attention drops {part}",
                where=where,
                hint="Load the model with attn_implementation='eager'",
            )
    if options.get("scaling") is None:
        raise UnsupportedModel("the attention states no scaling of its logits", where=where)
    if options.get("dropout"):
        raise UnsupportedModel(
            "dropout is active", where=where, hint="Call model.eval() before recording"
        )


def require_finite(layer: int, stored: Mapping[str, torch.Tensor], dtype: str) -> None:
    """Refuse tensors (a dict by kind, in their storage dtype) with NaN or infinity."""
    import torch

    for kind, tensor in stored.items():
        # A sum is finite only if every term is, and takes a sixth of the time of isfinite. It
        # overflows on finite numbers only near 1e38 / size, which no attention survives.
        if not tensor.sum(dtype=torch.float32).isfinite():
            raise RecordingRefused(
                "a captured tensor holds NaN or infinity",
                where=f"layer {layer}, {kind}",
                expected=f"finite numbers that fit {dtype}",
            )


class Heads:
    """Which of a layer's heads are recorded: the chosen kv_heads and the query heads they serve."""

    def __init__(self, chosen: Sequence[int], q_heads: int, kv_heads: int) -> None:
        group = q_heads // kv_heads
        self.kv = np.array(chosen)
        self.q = (self.kv[:, None] * group + np.arange(group)).ravel()


def call_of(
    layer: int,
    spot: Placed,
    heads: Heads,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    output: torch.Tensor,
    inner: str,
    arithmetic: LayerArithmetic,
) -> Call:
    """The chosen heads and the tokens (no padding) of one sequence's part of a call."""
    return Call(
        layer=layer,
        start=spot.start,
        stop=spot.stop,
        base=spot.base,
        query=cut(cut(query, heads.q, 0), spot.rows, 1),
        key=cut(cut(key, heads.kv, 0), spot.columns, 1),
        value=cut(cut(value, heads.kv, 0), spot.columns, 1),
        output=cut(cut(output, spot.rows, 0), heads.q, 1),
        lo=spot.lo,
        hi=spot.hi,
        inner=inner,
        arithmetic=arithmetic,
    )
