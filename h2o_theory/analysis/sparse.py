"""How sparse attention is: by layer, head, distance and length of the row."""

import numpy as np
import pandas as pd

from h2o_theory.analysis.tally import MASSES, distance_bins
from h2o_theory.statistics import ratio_interval

__all__ = ["sparsity", "support"]


def sparsity(survey, measurements):
    """Share of entries below the threshold times their row's maximum, in both countings.

    Over the causal entries alone, and over the whole square, where every entry of the future
    counts as a zero. Intervals resample blocks of rows.

    Parameters
    ----------
    survey : Survey
    measurements : Measurements

    Returns
    -------
    dict of str to DataFrame
        ``sparsity_by_head`` (layer, kv_head, q_head, causal, square), ``sparsity_by_layer``
        (layer, causal, low, high, square), ``sparsity_by_distance`` (layer, distance, sparse,
        mass: attention on that distance, per row) and ``sparsity_by_length`` (layer, row_from,
        row_to, sparse: causal sparsity of rows of similar length).
    """
    tokens = survey.tokens
    lengths = np.arange(1, tokens + 1)
    causal = lengths.sum()
    by_head = pd.DataFrame(survey.query_heads())
    below = np.concatenate([head.rows.below for head in survey.heads])
    by_head["causal"] = below.sum(axis=1) / causal
    by_head["square"] = (below.sum(axis=1) + tokens**2 - causal) / tokens**2
    by_layer, by_distance, by_length = [], [], []
    _, names = distance_bins(tokens)
    for layer in survey.layers:
        heads = survey.of_layer(layer)
        counts = np.concatenate([head.rows.below for head in heads])
        rows, visible = counts.sum(axis=0), lengths * len(counts)
        line = by_head[by_head.layer == layer][["causal", "square"]].mean().to_dict()
        interval = measurements.attempt(
            "sparsity", f"layer {layer}", lambda rows=rows, seen=visible: ratio_interval(rows, seen)
        )
        ends = {"low": interval.low, "high": interval.high} if interval else {}
        by_layer.append({"layer": layer, **line, **ends})
        below_at, entries_at, mass_at = (
            sum(getattr(head.rows, f"distance_{name}") for head in heads)
            for name in ("below", "entries", "mass")
        )
        for place, name in enumerate(names):
            by_distance.append(
                {
                    "layer": layer,
                    "distance": name,
                    "sparse": below_at[place] / entries_at[place],
                    "mass": mass_at[place] / (tokens * len(counts)),
                }
            )
        for start, stop in _row_groups(tokens):
            share = rows[start:stop].sum() / visible[start:stop].sum()
            by_length.append(
                {"layer": layer, "row_from": start + 1, "row_to": stop, "sparse": share}
            )
    _note_sparsity(survey, below, lengths, pd.DataFrame(by_layer), measurements)
    return {
        "sparsity_by_head": by_head,
        "sparsity_by_layer": pd.DataFrame(by_layer),
        "sparsity_by_distance": pd.DataFrame(by_distance),
        "sparsity_by_length": pd.DataFrame(by_length),
    }


def _row_groups(tokens):
    """Ranges of rows of doubling length: 1-16 keys, 17-32, 33-64, ..."""
    ends = [0, 16]
    while ends[-1] < tokens:
        ends.append(2 * ends[-1])
    ends[-1] = tokens if tokens > 16 else ends[-1]
    return [(a, min(b, tokens)) for a, b in zip(ends, ends[1:], strict=False) if a < tokens]


def _note_sparsity(survey, below, lengths, by_layer, measurements):
    tokens, heads = survey.tokens, len(below)
    rows, visible = below.sum(axis=0), lengths * heads
    future = (tokens - lengths) * heads
    over = f"{heads} query heads x {tokens} rows; interval over blocks of rows"
    for scope, above, whole in (
        ("causal entries", rows, visible),
        ("whole square", rows + future, visible + future),
    ):
        measurements.enter(
            "sparsity", "sparse share", scope,
            lambda above=above, whole=whole: ratio_interval(above, whole),
            unit="share of entries", n=heads, over=over,
        )  # fmt: skip
    for scope, column in (("causal entries", "causal"), ("whole square", "square")):
        measurements.note(
            "sparsity", "layers at 95 %", scope, (by_layer[column] >= 0.95).mean(),
            unit="share of layers", n=len(by_layer), over="layers recorded, exact",
        )  # fmt: skip


def support(survey, measurements):
    """Keys that hold 90, 95 and 99 % of a row, and the cache share that would allow.

    The count is of the best keys of each row on its own: no cache that keeps one set for all
    rows can do with fewer. ``row_share`` is the mean over rows of keys / length of the row;
    ``cache_share`` is over the last quarter of the rows, where the cache is largest: the budget
    as a share of T with which 95 % of these rows could hold that mass.

    Parameters
    ----------
    survey : Survey
    measurements : Measurements

    Returns
    -------
    DataFrame
        layer, mass, keys (mean over rows and query heads), row_share, cache_share; and
        low, high: the interval of ``row_share`` over blocks of rows, where there is one.
    """
    tokens = survey.tokens
    lengths = np.arange(1, tokens + 1)
    late = slice(tokens - max(1, tokens // 4), tokens)
    lines = []
    for layer in survey.layers:
        keys = np.concatenate([head.rows.support for head in survey.of_layer(layer)])
        for level, mass in enumerate(MASSES):
            shares = (keys[:, :, level] / lengths).mean(axis=0)
            interval = measurements.attempt(
                "support",
                f"layer {layer}, {mass:.0%}",
                lambda shares=shares: ratio_interval(shares, np.ones(tokens)),
            )
            ends = {"low": interval.low, "high": interval.high} if interval else {}
            lines.append(
                {
                    "layer": layer,
                    "mass": mass,
                    "keys": keys[:, :, level].mean(),
                    "row_share": shares.mean(),
                    "cache_share": np.quantile(keys[:, late, level], 0.95) / tokens,
                    **ends,
                }
            )
    _note_support(survey, lengths, late, measurements)
    return pd.DataFrame(lines)


def _note_support(survey, lengths, late, measurements):
    keys = np.concatenate([head.rows.support for head in survey.heads])
    tokens, over = survey.tokens, f"{len(keys)} query heads; interval over blocks of rows"
    for level, mass in enumerate(MASSES):
        shares = (keys[:, :, level] / lengths).mean(axis=0)
        for measure, values, where in (
            ("share of the row", shares, slice(0, tokens)),
            ("share of the row, last quarter", shares, late),
            ("keys", keys[:, :, level].mean(axis=0), slice(0, tokens)),
        ):
            chosen = values[where]
            measurements.enter(
                "support", measure, f"{mass:.0%} of the mass",
                lambda chosen=chosen: ratio_interval(chosen, np.ones(len(chosen))),
                unit="keys" if measure == "keys" else "share of keys", n=len(keys), over=over,
            )  # fmt: skip
