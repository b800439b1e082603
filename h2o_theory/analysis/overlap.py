"""Do heads and layers agree on who the heavy hitters are?"""

import numpy as np
import pandas as pd

from h2o_theory.statistics import ratio_interval

__all__ = ["overlap_between"]


def overlap_between(survey, measurements):
    """Overlap of the final heavy hitters between kv_heads of a layer and between layers.

    Every kv_head has the same number m of heavy hitters among n positions (sinks apart); the
    overlap of two heads is the share of one's that are also the other's, m / n for random sets.

    Parameters
    ----------
    survey : Survey
    measurements : Measurements

    Returns
    -------
    DataFrame
        layer_a, layer_b, overlap, pairs: the mean over pairs of different kv_heads.
    """
    heads = survey.heads
    members = np.array([head.history.members[-1] for head in heads], dtype=float)
    layer = np.array([head.layer for head in heads])
    m = members[0].sum()
    first = min(survey.n_sink, survey.tokens)
    if m == 0:
        measurements.lack("overlap", "between heads", "no position besides the sinks")
        return pd.DataFrame()
    shared = members @ members.T / m
    different = ~np.eye(len(heads), dtype=bool)
    lines = []
    for a in survey.layers:
        for b in survey.layers:
            pairs = different & np.outer(layer == a, layer == b)
            if pairs.any():
                mean = shared[pairs].mean()
                lines.append(
                    {"layer_a": a, "layer_b": b, "overlap": mean, "pairs": int(pairs.sum())}
                )
    same = layer[:, None] == layer
    for scope, pairs in (("heads of a layer", different & same), ("layers", ~same)):
        if not pairs.any():
            measurements.lack("overlap", scope, "there is no pair to compare")
            continue
        # A position is in both sets of a pair, or only in the first.
        both = np.einsum("hj,hg,gj->j", members, pairs.astype(float), members)
        one = pairs.sum(axis=1) @ members
        measurements.enter(
            "overlap", "final heavy hitters", scope,
            lambda both=both, one=one: ratio_interval(both[first:], one[first:]),
            unit="share of the set", n=int(pairs.sum()) // 2,
            over="pairs of kv_heads; interval over blocks of positions",
        )  # fmt: skip
    measurements.note(
        "overlap", "final heavy hitters", "random sets", m / (survey.tokens - first),
        unit="share of the set", n=1, over="exact",
    )  # fmt: skip
    return pd.DataFrame(lines)
