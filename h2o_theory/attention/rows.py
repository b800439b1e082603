"""Attention rows recomputed from queries and keys, and their renormalisation over a visible set."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from h2o_theory.annotations import FloatArray

__all__ = ["attention_logits", "attention_rows", "renormalise", "softmax_rows"]


def attention_logits(
    queries: ArrayLike, keys: ArrayLike, scaling: float, softcap: float | None = None
) -> FloatArray:
    r"""Logits before the softmax, :math:`\mathrm{cap}(\text{scaling} \cdot \langle q, k \rangle)`.

    Parameters
    ----------
    queries : array [G, n, d]
        Queries after rotary embedding, any float dtype.
    keys : array [T, d]
        Keys after rotary embedding, of the kv_head the G query heads share.
    scaling : float
        The factor the model passed to its attention (1 for OPT, which scales its queries).
    softcap : float, optional
        The soft limit c of Gemma 2, :math:`c \tanh(x / c)`; without it cap is the identity.

    Returns
    -------
    array [G, n, T], float64
        O(G n T d) time.
    """
    logits = np.asarray(queries, dtype=np.float64) @ np.asarray(keys, dtype=np.float64).T
    logits *= scaling
    if softcap is not None:
        logits = softcap * np.tanh(logits / softcap)
    return logits


def softmax_rows(
    logits: FloatArray, lo: ArrayLike, hi: ArrayLike, sinks: ArrayLike | None = None
) -> FloatArray:
    r"""Softmax of each row over the keys it may see.

    .. math::

        A[g, i, j] = \frac{e^{L[g,i,j]}}{e^{s_g} + \sum_{lo_i \le m < hi_i} e^{L[g,i,m]}}
        \quad (lo_i \le j < hi_i), \qquad 0 \text{ elsewhere;}

    :math:`e^{s_g}` is absent without sinks.

    Parameters
    ----------
    logits : array [G, n, T], float64
        Overwritten.
    lo, hi : int array [n]
        The visible interval of each row; ``0 <= lo < hi <= T``.
    sinks : array [G], optional
        One logit per query head that belongs to no key (gpt-oss); neither scaled nor capped.

    Returns
    -------
    array [G, n, T], float64
        Each row sums to one, or with sinks to one less the sink's share.

    Examples
    --------
    >>> softmax_rows(np.zeros((1, 2, 2)), [0, 0], [1, 2])
    array([[[1. , 0. ],
            [0.5, 0.5]]])
    """
    column = np.arange(logits.shape[-1])
    hidden = (column < np.asarray(lo)[:, None]) | (column >= np.asarray(hi)[:, None])
    logits[:, hidden] = -np.inf
    if sinks is None:
        sinks = np.full(len(logits), -np.inf)
    sinks = np.asarray(sinks, dtype=np.float64)[:, None, None]
    largest = np.maximum(logits.max(axis=-1, keepdims=True), sinks)
    logits -= largest
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=-1, keepdims=True) + np.exp(sinks - largest)
    return logits


def attention_rows(
    queries: NDArray[Any],
    keys: NDArray[Any],
    lo: ArrayLike,
    hi: ArrayLike,
    scaling: float,
    softcap: float | None = None,
    sinks: ArrayLike | None = None,
) -> FloatArray:
    r"""Softmax attention rows of a group of query heads over the keys each row may see.

    :func:`softmax_rows` of :func:`attention_logits`; the parameters are theirs.

    Returns
    -------
    array [G, n, T], float64
        Products and exponentials are taken in float64, so that a row renormalised over a set of
        tiny mass is still exact: float32 probabilities vanish below 1e-38, float64 below 1e-308.

    Notes
    -----
    O(G n T d) time, 8 G n T bytes. Keys that no row sees are left out of the products.
    """
    width = int(np.max(hi, initial=0))
    rows = np.zeros((queries.shape[0], queries.shape[1], keys.shape[0]))
    if not width:
        return rows
    logits = attention_logits(queries, keys[:width], scaling, softcap)
    rows[:, :, :width] = softmax_rows(logits, lo, hi, sinks)
    return rows


def renormalise(
    rows: ArrayLike, visible: NDArray[np.bool_], sink_share: float | FloatArray = 0.0
) -> FloatArray:
    r"""Rows as a cache holding only the visible keys computes them.

    .. math:: \hat A[.., t, j] = \frac{A[.., t, j]}{\sigma_t + \sum_{i \in S_t} A[.., t, i]}
              \ (j \in S_t), \qquad 0 \text{ otherwise.}

    Masked softmax equals this restriction of the full softmax, so nothing is approximated.
    A row whose visible mass is exactly zero (possible only in imported matrices) stays zero.

    Parameters
    ----------
    rows : array [..., T]
    visible : bool array, broadcastable to ``rows``
    sink_share : float or array [..., 1]
        :math:`\sigma_t`, what a sink that belongs to no key takes of each row: one less the sum of
        the full row.

    Returns
    -------
    array like ``rows``, float64

    Examples
    --------
    >>> renormalise([0.5, 0.3, 0.2], np.array([True, False, True])).round(3)
    array([0.714, 0.   , 0.286])
    """
    kept = np.where(visible, np.asarray(rows, dtype=np.float64), 0.0)
    mass = kept.sum(axis=-1, keepdims=True) + sink_share
    return np.divide(kept, mass, out=np.zeros_like(kept), where=mass > 0)
