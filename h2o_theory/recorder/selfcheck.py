"""The self-check: what is stored must reproduce what the model's attention returned."""

import numpy as np

from h2o_theory.errors import RecordingRefused
from h2o_theory.recorder.buffer import to_storage

__all__ = ["TOLERANCE", "SelfCheck", "output_error", "rows_to_check"]

TOLERANCE = {"float32": 2e-5, "float16": 2e-3, "bfloat16": 1e-2}
"""Largest accepted relative error by the model's dtype.

Rounding noise measured over 30 layers of SmolLM2-135M at T = 512: 1.9e-6, 5.6e-4 and 4.3e-3
with sdpa attention. A wrong visible interval, scaling or head is off by 1e-1 or more.
"""

STEP_INTERVAL = 16
"""Single-token steps after the first 16 are checked one in this many, to keep generation quick."""

GOLDEN = 0.6180339887498949


class SelfCheck:
    """Recomputes a few rows of each call and keeps the largest error of each layer.

    Parameters
    ----------
    model_dtype, dtype : str
        Dtype of the model's tensors and of the stored ones.
    rows_per_call : int

    Attributes
    ----------
    errors : dict of int to float
        Layer -> largest error of the tensors as captured. If they are stored in the model's own
        dtype, these are the stored tensors themselves.
    storage_errors : dict of int to float
        Layer -> largest error of the tensors as stored, where another storage dtype was asked
        for; its rounding is the user's choice and is reported, not refused.
    rows : int
        Rows recomputed so far.
    """

    def __init__(self, model_dtype, dtype, rows_per_call):
        self._model_dtype, self._dtype = model_dtype, dtype
        self._rows_per_call = rows_per_call
        self.errors, self.storage_errors, self.rows = {}, {}, 0

    def check(self, call, stored, lo, hi, softcap):
        """Check one call.

        Parameters
        ----------
        call : Call
        stored : dict
            The call's new rows in storage form: ``q``, ``k``, ``v``.
        lo, hi : int arrays [n]
            Visible intervals of the call's rows.
        softcap : float or None

        Raises
        ------
        RecordingRefused
            If the recomputed output is further from the model's than TOLERANCE allows.
        """
        rows = rows_to_check(call.start, call.rows, self._rows_per_call, call.layer)
        if not len(rows):
            return
        exact_order = call.query.dtype if call.inner == "eager" else None
        found = {}
        for dtype in {self._model_dtype, self._dtype}:
            found[dtype] = output_error(
                *self._form(call, stored, rows, dtype),
                lo[rows],
                hi[rows],
                call.output[rows],
                call.scaling,
                softcap,
                exact_order,
            )
        error, accepted = found[self._model_dtype], TOLERANCE[self._model_dtype]
        if not error <= accepted:
            raise RecordingRefused(
                "the captured queries, keys and values do not reproduce the attention's output",
                where=f"layer {call.layer}, rows {call.start} to {call.stop - 1}",
                got=f"relative error {error:.2g}",
                expected=f"at most {accepted:g}",
            )
        self.rows += len(rows)
        self.errors[call.layer] = max(error, self.errors.get(call.layer, 0.0))
        if self._dtype != self._model_dtype:
            known = self.storage_errors.get(call.layer, 0.0)
            self.storage_errors[call.layer] = max(found[self._dtype], known)

    def _form(self, call, stored, rows, dtype):
        """Queries of the rows and all keys and values so far, as they are in a dtype."""
        if dtype == self._dtype and call.start == 0:
            return stored["q"][:, rows], stored["k"], stored["v"]
        parts = call.query[:, rows], call.key[:, : call.stop], call.value[:, : call.stop]
        return tuple(to_storage(part, dtype) for part in parts)


def rows_to_check(start, count, wanted, layer):
    """Rows of one call to recompute: the last, and others spread evenly, shifted by the layer.

    Parameters
    ----------
    start, count : int
        Position of the call's first row, and its number of rows.
    wanted : int
        Rows to check per call, at least 1.
    layer : int

    Returns
    -------
    int array
        Offsets within the call, ascending; empty for a single-token step that is not sampled.
    """
    if count == 1 and start >= STEP_INTERVAL and start % STEP_INTERVAL != STEP_INTERVAL - 1:
        return np.empty(0, dtype=np.int64)
    if count <= wanted:
        return np.arange(count)
    shift = (layer * GOLDEN) % 1.0
    spread = (np.arange(wanted - 1) + shift) * (count - 1) / max(wanted - 1, 1)
    return np.unique(np.append(spread.astype(np.int64), count - 1))


def output_error(query, key, value, lo, hi, output, scaling, softcap=None, rounding=None):
    r"""Largest relative error of attention outputs recomputed from captured tensors.

    .. math:: \max_{h,i} \frac{\| \mathrm{softmax}_{lo_i \le j < hi_i}
              (\text{scaling}\, \langle q_{h,i}, k_j \rangle)\, V - o_{h,i} \|_2}
              {\| o_{h,i} \|_2}

    Parameters
    ----------
    query : tensor [q_heads, n, d]
        The checked rows, on the CPU, as are ``key`` [kv_heads, m, d] and ``value``
        [kv_heads, m, dv], which start at key 0.
    lo, hi : int arrays [n]
    output : tensor [n, q_heads, dv]
        What the inner attention returned for these rows, before the output projection.
    scaling : float
    softcap : float, optional
    rounding : torch.dtype, optional
        Dtype to which each intermediate result is rounded, as eager attention in half precision
        does. Without that, the model's own rounding of large logits (3e-2 relative in bfloat16)
        would drown what the check looks for.

    Returns
    -------
    float
        Infinite if an output is zero and the recomputed one is not.

    Notes
    -----
    Computed in float32; O(q_heads n m (d + dv)) time.
    """
    import torch

    def rounded(tensor):
        return tensor if rounding is None else tensor.to(rounding).float()

    q_heads, rows, width = query.shape
    kv_heads, keys, _ = key.shape
    grouped = query.float().reshape(kv_heads, -1, width)
    logits = rounded(torch.matmul(grouped, key.float().transpose(1, 2)))
    logits = rounded(logits.mul_(scaling))
    if softcap is not None:
        logits = rounded(softcap * rounded(torch.tanh(rounded(logits / softcap))))
    column = torch.arange(keys)
    lo, hi = torch.as_tensor(lo)[:, None], torch.as_tensor(hi)[:, None]
    hidden = (column < lo) | (column >= hi)
    logits = logits.view(kv_heads, -1, rows, keys).masked_fill_(hidden, -torch.inf)
    weights = rounded(torch.softmax(logits, dim=-1)).view(kv_heads, -1, keys)
    again = torch.matmul(weights, value.float()).view(q_heads, rows, -1)
    model_output = output.to("cpu", torch.float32).transpose(0, 1)
    distance = (again - model_output).norm(dim=-1)
    relative = distance / model_output.norm(dim=-1)
    return float(torch.where(distance == 0, 0.0, relative).max())
