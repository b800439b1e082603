"""Attention rows recomputed from queries and keys, and their renormalisation over a visible set."""

import numpy as np

__all__ = ["attention_rows", "renormalise"]


def attention_rows(queries, keys, lo, hi, scaling, softcap=None, sinks=None):
    r"""Softmax attention rows of a group of query heads over the keys each row may see.

    .. math::

        L[g, i, j] = \mathrm{cap}(\text{scaling} \cdot \langle q_{g,i}, k_j \rangle), \qquad
        A[g, i, j] = \frac{e^{L[g,i,j]}}{e^{s_g} + \sum_{lo_i \le m < hi_i} e^{L[g,i,m]}}

    for :math:`lo_i \le j < hi_i` and 0 elsewhere, where cap is the identity or
    :math:`c \tanh(x / c)` when a softcap c is given, and :math:`e^{s_g}` is absent without sinks.

    Parameters
    ----------
    queries : array [G, n, d]
        Queries after rotary embedding, any float dtype.
    keys : array [T, d]
        Keys after rotary embedding, of the kv_head the G query heads share.
    lo, hi : int array [n]
        The visible interval of each row; ``0 <= lo < hi <= T``.
    scaling : float
        The factor the model passed to its attention (1 for OPT, which scales its queries).
    softcap : float, optional
        The soft limit on logits (Gemma 2).
    sinks : array [G], optional
        One logit per query head that belongs to no key (gpt-oss); neither scaled nor capped.

    Returns
    -------
    array [G, n, T], float64
        Each row sums to one, or with sinks to one less the sink's share. Products and
        exponentials are taken in float64, so that a row renormalised over a set of tiny mass is
        still exact: float32 probabilities vanish below 1e-38, float64 below 1e-308.

    Notes
    -----
    O(G n T d) time, 8 G n T bytes.
    """
    queries = np.asarray(queries, dtype=np.float64)
    keys = np.asarray(keys, dtype=np.float64)
    lo, hi = np.asarray(lo), np.asarray(hi)
    rows = np.zeros((queries.shape[0], queries.shape[1], keys.shape[0]))
    width = int(hi.max(initial=0))
    logits = queries @ keys[:width].T
    logits *= scaling
    if softcap is not None:
        logits = softcap * np.tanh(logits / softcap)
    column = np.arange(width)
    hidden = (column < lo[:, None]) | (column >= hi[:, None])
    logits[:, hidden] = -np.inf
    if sinks is None:
        sinks = np.full(queries.shape[0], -np.inf)
    sinks = np.asarray(sinks, dtype=np.float64)[:, None, None]
    largest = np.maximum(logits.max(axis=-1, keepdims=True), sinks)
    logits -= largest
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=-1, keepdims=True) + np.exp(sinks - largest)
    rows[:, :, :width] = logits
    return rows


def renormalise(rows, visible):
    r"""Rows as a cache holding only the visible keys computes them.

    .. math:: \hat A[.., t, j] = \frac{A[.., t, j]}{\sum_{i \in S_t} A[.., t, i]}
              \ (j \in S_t), \qquad 0 \text{ otherwise.}

    Masked softmax equals this restriction of the full softmax, so nothing is approximated.
    A row whose visible mass is exactly zero (possible only in imported matrices) stays zero.

    Parameters
    ----------
    rows : array [..., T]
    visible : bool array, broadcastable to ``rows``

    Returns
    -------
    array like ``rows``, float64
    """
    kept = np.where(visible, np.asarray(rows, dtype=np.float64), 0.0)
    mass = kept.sum(axis=-1, keepdims=True)
    return np.divide(kept, mass, out=np.zeros_like(kept), where=mass > 0)
