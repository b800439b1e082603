"""One attention call as the recorder sees it, and what makes a call unfit for a trace."""

from dataclasses import dataclass

import numpy as np

from h2o_theory.errors import RecordingRefused, UnsupportedModel

__all__ = ["ONE_SEQUENCE", "Call", "refuse_non_causal", "refuse_non_finite", "refuse_options"]

ONE_SEQUENCE = "Record one sequence per with-block, from its first token"


@dataclass(frozen=True)
class Call:
    """One attention call of one layer, its batch axis removed.

    Attributes
    ----------
    layer : int
    start, stop : int
        Token positions of its query rows.
    query, key, value : torch.Tensor
        [q_heads, n, d], [kv_heads, m, d], [kv_heads, m, dv] with m >= stop.
    output : torch.Tensor [n, q_heads, dv]
    inner : str
        The implementation that computed the output.
    scaling : float
    """

    layer: int
    start: int
    stop: int
    query: object
    key: object
    value: object
    output: object
    inner: str
    scaling: float

    @property
    def rows(self):
        """Number of query rows n."""
        return self.stop - self.start


def refuse_options(where, inner, options):
    """Refuse arithmetic that a trace does not hold, or that the inner attention would drop."""
    for name in ("s_aux", "position_bias"):
        if options.get(name) is not None:
            raise UnsupportedModel(
                f"the attention uses {name}, which a trace does not hold", where=where
            )
    if options.get("softcap") is not None and inner == "sdpa":
        raise UnsupportedModel(
            "sdpa attention drops the softcap on the logits",
            where=where,
            hint="Load the model with attn_implementation='eager'",
        )
    if options.get("scaling") is None:
        raise UnsupportedModel("the attention states no scaling of its logits", where=where)
    if options.get("dropout"):
        raise UnsupportedModel(
            "dropout is active", where=where, hint="Call model.eval() before recording"
        )


def refuse_non_causal(call, lo, hi):
    """Refuse rows whose own token is not their last visible key, and a second sequence.

    A row past the first that sees only itself begins a packed document.
    """
    position = call.start + np.arange(call.rows)
    wrong = (hi != position + 1) | ((lo == position) & (position > 0))
    if wrong.any():
        row = int(wrong.argmax())
        raise RecordingRefused(
            "the visible keys are not those of one causal sequence",
            where=f"layer {call.layer}, token {position[row]}",
            got=f"keys {lo[row]} to {hi[row] - 1}",
            expected=f"earlier keys, and {position[row]} as the last",
            hint=ONE_SEQUENCE,
        )


def refuse_non_finite(layer, stored, dtype):
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
