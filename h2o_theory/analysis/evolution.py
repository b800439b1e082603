"""How the heavy hitters change along the sequence, and how far the past tells the future."""

import numpy as np
import pandas as pd

from h2o_theory.statistics import (
    median_survival,
    percentile_interval,
    ratio_interval,
    survival_curve,
)

__all__ = ["LAGS", "evolution", "heavy_hitter_map", "persistence"]

OVERLAPS = {
    "local-future": "heavy hitters by past attention that are heavy hitters by future attention",
    "global-future": "the same, chosen by all attention, past and future",
    "local-final": "heavy hitters by past attention that stay so by the end of the text",
}
LAGS = (1, 4, 16, 64)
"""Distances, in checkpoints, at which persistence is reported."""


def evolution(survey, measurements):
    """Overlap of the heavy hitters at step t with the future and with the final ones.

    All sets of a comparison have m_t members among the positions that have come (sinks apart),
    so the overlap of a random set is m_t / n_t, about the share that defines a heavy hitter.
    Entered in the measurements: each overlap over all checkpoints and kv_heads, and the future
    attention that the local and the global set receive, divided by what the best set of that
    number receives; intervals resample blocks of positions.

    Parameters
    ----------
    survey : Survey
    measurements : Measurements

    Returns
    -------
    by_step : DataFrame
        step, and for each overlap its mean and quartiles over kv_heads, and chance.
    by_head : DataFrame
        layer, kv_head, and each overlap.
    """
    heads = survey.heads
    steps = heads[0].history.steps[:-1]
    first = min(survey.n_sink, survey.tokens)
    if not len(steps) or survey.tokens <= first + 1:
        measurements.lack(
            "evolution", "overlap over time", "the text ends before there is a future"
        )
        return pd.DataFrame(), pd.DataFrame()
    by_step = pd.DataFrame({"step": steps, "positions": steps + 1 - first})
    by_step = by_step[by_step.positions > 0].reset_index(drop=True)
    kept = steps + 1 > first
    counts = heads[0].history.members[:-1].sum(axis=1)[kept]
    by_step["heavy_hitters"] = counts
    by_step["chance"] = counts / by_step.positions
    by_head = pd.DataFrame([{"layer": head.layer, "kv_head": head.kv_head} for head in heads])
    over = f"{len(heads)} kv_heads x {len(by_step)} steps; interval over blocks of positions"
    for name in OVERLAPS:
        column = name.replace("-", "_")
        at = np.array([head.history.overlap_at[name] for head in heads])[:, kept]
        by_step[column] = at.mean(axis=0)
        by_step[f"{column}_q25"], by_step[f"{column}_q75"] = np.quantile(at, [0.25, 0.75], axis=0)
        sums = np.array([head.history.overlap[name] for head in heads])
        by_head[column] = sums[:, 0].sum(axis=1) / sums[:, 1].sum(axis=1)
        pair = sums.sum(axis=0)[:, first:]
        measurements.enter(
            "evolution", name, "all heads", lambda pair=pair: ratio_interval(*pair),
            unit="share of the set", n=len(heads), over=over,
        )  # fmt: skip
    chance = (counts**2 / by_step.positions).sum() / counts.sum()
    measurements.note(
        "evolution", "random-future", "all heads", chance,
        unit="share of the set", n=len(heads), over="exact",
    )  # fmt: skip
    local, whole = (
        sum(head.history.captured[name] for head in heads) for name in ("local", "global")
    )
    for name, above in (
        ("local captured", local[0]),
        ("global captured", whole[0]),
        ("random captured", local[2]),
        ("local less global", local[0] - whole[0]),
    ):
        sums = np.stack([above, local[1]])[:, first:]
        measurements.enter(
            "evolution", name, "all heads", lambda sums=sums: ratio_interval(*sums),
            unit="of the best set's future attention", n=len(heads), over=over,
        )  # fmt: skip
    return by_step, by_head


def persistence(survey, measurements):
    """How long a heavy hitter stays one, how old positions are when they become one.

    Measured: the share of heavy hitters that are so again :data:`LAGS` checkpoints
    later; the share of positions that ever are heavy hitters; the median age at entry; the
    median stay by Kaplan and Meier, stays cut off by the end of the text counted as such.

    Parameters
    ----------
    survey : Survey
    measurements : Measurements

    Returns
    -------
    by_head : DataFrame
        layer, kv_head, ever, age_at_entry_median, stays, stays_cut_off, and the share of stays
        that last at least 8, 64 and 512 steps.
    curve : DataFrame
        steps, lasting: the survival curve of all kv_heads together.
    """
    heads, tokens = survey.heads, survey.tokens
    first = min(survey.n_sink, tokens)
    lines, ever, ages = [], np.zeros(tokens), []
    ended, censored = np.zeros(tokens + 1), np.zeros(tokens + 1)
    for head in heads:
        history = head.history
        age = history.age_at_entry
        entered = age[age >= 0]
        ever += age >= 0
        ages.append(age)
        ended += history.ended
        censored += history.censored
        stays = int(history.ended.sum() + history.censored.sum())
        if not stays:
            continue
        lasting = survival_curve(history.ended, history.censored)
        lines.append(
            {
                "layer": head.layer,
                "kv_head": head.kv_head,
                "ever": (age >= 0).sum() / max(tokens - first, 1),
                "age_at_entry_median": float(np.median(entered)),
                "stays": stays,
                "stays_cut_off": int(history.censored.sum()),
            }
            | {f"lasting_{d}": lasting[d] for d in (8, 64, 512) if d < len(lasting)}
        )
    if not lines:
        measurements.lack("persistence", "stays", "no position besides the sinks")
        return pd.DataFrame(), pd.DataFrame()
    _note_persistence(survey, ever, np.array(ages), measurements)
    lasting = survival_curve(ended, censored)
    median = median_survival(lasting)
    n = int((ended + censored).sum())
    if median is None:
        measurements.lack(
            "persistence", "median stay", "more than half of the stays outlast the text"
        )
    else:
        measurements.note("persistence", "median stay", "all heads", _stay_interval(heads, median),
                    unit="steps", n=n, over="stays; interval over kv_heads")  # fmt: skip
    steps = np.unique(np.geomspace(1, tokens, 64).round().astype(int))
    return pd.DataFrame(lines), pd.DataFrame({"steps": steps, "lasting": lasting[steps]})


def _stay_interval(heads, median, replicates=200):
    """Median stay with an interval over resampled kv_heads; an endless median counts as T."""
    ended = np.array([head.history.ended for head in heads])
    censored = np.array([head.history.censored for head in heads])
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(replicates):
        chosen = rng.integers(len(heads), size=len(heads))
        again = survival_curve(ended[chosen].sum(axis=0), censored[chosen].sum(axis=0))
        drawn.append(median_survival(again) or len(again) - 1)
    return percentile_interval(median, drawn)


def _note_persistence(survey, ever, ages, measurements):
    heads, tokens = survey.heads, survey.tokens
    first = min(survey.n_sink, tokens)
    steps = heads[0].history.steps
    over = f"{len(heads)} kv_heads; interval over blocks of positions"

    def enter(measure, unit, function):
        measurements.enter(
            "persistence", measure, "all heads", function, unit=unit, n=len(heads), over=over
        )

    for lag in LAGS:
        if lag >= len(steps):
            continue
        both, one = np.zeros(tokens), np.zeros(tokens)
        for head in heads:
            members = head.history.members
            both += (members[:-lag] & members[lag:]).sum(axis=0)
            one += members[:-lag].sum(axis=0)
        distance = round(float(np.mean(steps[lag:] - steps[:-lag])))
        enter(
            f"still after {distance} steps",
            "share of heavy hitters",
            lambda both=both, one=one: ratio_interval(both[first:], one[first:]),
        )
    entries = (ages >= 0).sum(axis=0)
    early = ((ages >= 0) & (ages < 8)).sum(axis=0)
    enter(
        "ever a heavy hitter",
        "share of positions",
        lambda: ratio_interval(ever[first:], np.full(tokens - first, len(heads))),
    )
    enter(
        "entered within 8 steps",
        "share of those that ever enter",
        lambda: ratio_interval(early[first:], entries[first:]),
    )


def heavy_hitter_map(survey):
    """Share of kv_heads in which each position is a heavy hitter at each checkpoint.

    Returns
    -------
    steps : int array [C]
    share : array [C, T]
        The sinks are zero: they take no part.
    """
    members = sum(head.history.members.astype(np.int64) for head in survey.heads)
    return survey.heads[0].history.steps, members / len(survey.heads)
