"""Positions by slot: what a cache computes that numbers its entries anew after every eviction."""

import numpy as np

from h2o_theory.attention import rotate
from h2o_theory.attention.measures import divergences, relative_errors
from h2o_theory.engine.tensors import counts_slots, load_tensors

__all__ = ["slot_columns", "slot_measures", "slot_rows"]


def slot_rows(queries, keys, lo, evicted_at, rotary, scaling, softcap=None):
    r"""Rows over the visible sets with positions counted within the cache, one at a time.

    Row t sees :math:`j_0 < \dots < j_{n-1} = t` at positions 0 to n - 1:

    .. math:: A'[g, t, j_i] \propto \exp \big( \mathrm{scaling} \,
              \langle R_{n-1} q_{g,t}, R_i k_{j_i} \rangle \big)

    Parameters
    ----------
    queries : array [G, T, d]
        Before rotary embedding.
    keys : array [T, d]
        Before rotary embedding.
    lo : int array [T]
        First key that the model's own mask lets each row see.
    evicted_at : int array [T]
    rotary : tuple (theta, width)
    scaling, softcap : float
        As in :func:`h2o_theory.attention.attention_rows`.

    Yields
    ------
    (visible, rows)
        Positions int [n] and weights float64 [G, n] of row t = 0, 1, ...; O(G k d) each.
    """
    arrived = np.arange(len(keys))
    for t in arrived:
        visible = arrived[: t + 1][(evicted_at[: t + 1] >= t) & (arrived[: t + 1] >= lo[t])]
        slots = np.arange(len(visible))
        turned = rotate(keys[visible], slots, *rotary)
        query = rotate(queries[:, t : t + 1], slots[-1:], *rotary)[:, 0]
        logits = scaling * query @ turned.T
        if softcap is not None:
            logits = softcap * np.tanh(logits / softcap)
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        yield visible, weights / weights.sum(axis=-1, keepdims=True)


def slot_columns(trace, layer, kv_head, policy, evicted_at, prefill):
    """The columns of a result that differ if the policy's cache counts slots; else none."""
    if not counts_slots(policy):
        return {}
    error, divergence = slot_measures(trace, layer, kv_head, evicted_at, prefill)
    return {"output_error": error, "kl": divergence}


def slot_measures(trace, layer, kv_head, evicted_at, prefill=0):
    r"""Output error and divergence of a schedule when positions are counted within the cache.

    .. math:: \frac{\| \sum_j A'_j v_j - \sum_j A_j v_j \|}{\| \sum_j A_j v_j \|}, \qquad
              \mathrm{KL}(A' \| A) = \sum_j A'_j \log (A'_j / A_j)

    means over the scored rows and the query heads, A the recorded full rows. Retained mass is a
    matter of A and the sets alone and does not change.

    Parameters
    ----------
    trace : Trace
        With queries, keys and values, and a rotary embedding that can be taken out.
    layer, kv_head : int
    evicted_at : int array [T]
    prefill : int
        Rows before it are not scored.

    Returns
    -------
    (float, float)
        Output error, and divergence in nats.

    Notes
    -----
    O(G T k d) time in numpy; later queries and keys stay as recorded, as in any replay.
    """
    tensors = load_tensors(trace, layer, kv_head, ["unrotated", "keys", "values"])
    rotary = tensors.rotary
    spec = trace.layer(layer)
    keys = rotate(tensors.keys, -np.arange(trace.tokens), *rotary)
    lo = trace.tensor(layer, "lo")
    rows = slot_rows(tensors.unrotated, keys, lo, evicted_at, rotary, tensors.scaling, spec.softcap)
    errors, kl = [], []
    recorded = (
        block[:, b] for _, block in trace.blocks(layer, kv_head) for b in range(block.shape[1])
    )
    for t, (own, (visible, weights)) in enumerate(zip(recorded, rows, strict=True)):
        if t < prefill:
            continue
        output = weights @ tensors.values[visible]
        errors += relative_errors(output, own @ tensors.values).tolist()
        kl += divergences(weights, own[:, visible]).tolist()
    return float(np.mean(errors)), float(np.mean(kl))
