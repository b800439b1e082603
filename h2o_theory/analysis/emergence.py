"""How concentrated accumulated attention is, and how much of it is position."""

import numpy as np
import pandas as pd

from h2o_theory.statistics import (
    block_draws,
    concentration_profile,
    partial_spearman,
    percentile_interval,
    ratio_interval,
)

__all__ = ["TOP_SHARES", "concentration", "position_bias"]

TOP_SHARES = (0.01, 0.05, 0.10, 0.20)
DRAWS = 100
ALL, BARE, WORDS = "positions", "positions without sinks", "words without sinks"

UNITS = {"Gini": "0 equal, 1 one has all", "entropy": "nats", "effective support": "entries"}


def concentration(survey, words, measurements, *, replicates=DRAWS):
    """Concentration of accumulated attention over positions and over words.

    The mean over query heads is measured with a block-bootstrap interval over the
    text: blocks of positions are resampled, the sinks always kept, and every head's measure is
    taken anew. Beside it stands what uniform attention gives: a row t that attends equally to
    its t + 1 keys leaves more on early positions, so exposure alone concentrates.

    Words sum over their occurrences, those among the sinks apart: the first word of a text would
    else be credited with what any first token receives.

    Parameters
    ----------
    survey : Survey
    words : Words or None
    measurements : Measurements
    replicates : int
        Resampled texts.

    Returns
    -------
    DataFrame
        One row per query head and scope: layer, kv_head, q_head, scope, entries, and
        the measures of
        :func:`~h2o_theory.statistics.concentration.concentration_profile`.
    """
    names = survey.query_heads()
    received = np.concatenate([head.received for head in survey.heads])
    first = min(survey.n_sink, survey.tokens)
    amounts = {ALL: received}
    if (received[:, first:].sum(axis=1) > 0).all():
        amounts[BARE] = received[:, first:]
    else:
        measurements.lack("concentration", BARE, "a head attends to nothing but the sinks")
    if words is not None and len(words.kinds) > 1:
        bare = received.copy()
        bare[:, :first] = 0
        by_kind = np.array([words.per_kind(row) for row in bare])
        if (by_kind.sum(axis=1) > 0).all():
            amounts[WORDS] = by_kind
    tables = []
    for scope, values in amounts.items():
        table = pd.DataFrame(names)
        table["scope"], table["entries"] = scope, values.shape[1]
        for name, measured in concentration_profile(values, TOP_SHARES).items():
            table[name] = measured
        tables.append(table)
    _note(survey, amounts, measurements, replicates)
    return pd.concat(tables, ignore_index=True)


def _note(survey, amounts, measurements, replicates):
    first = min(survey.n_sink, survey.tokens)
    n = len(amounts[ALL])
    for name, exact in concentration_profile(_uniform(survey.tokens), TOP_SHARES).items():
        measurements.note(
            "concentration", name, "uniform attention", exact,
            unit=UNITS.get(name, "share of attention"), n=1, over="exact",
        )  # fmt: skip
    drawn = measurements.attempt(
        "concentration",
        "intervals",
        lambda: _redraw(survey.tokens, first, amounts, replicates),
    )
    if drawn is None:
        return
    for scope, values in amounts.items():
        for name, value in _means(values).items():
            measurements.note(
                "concentration", name, scope,
                percentile_interval(value, [again[name] for again in drawn[scope]]),
                unit=UNITS.get(name, "share of attention"), n=n,
                over="query heads (mean); interval over "
                + ("words" if scope == WORDS else "blocks of the text"),
            )  # fmt: skip


def _redraw(tokens, first, amounts, replicates):
    """The measures of every scope on resampled texts; sinks are kept, words drawn as kinds."""
    sinks = np.arange(first)
    drawn = {scope: [] for scope in amounts}
    for draw in block_draws(tokens, replicates, first=first):
        drawn[ALL].append(_means(amounts[ALL][:, np.concatenate([sinks, draw])]))
        if BARE in amounts:
            drawn[BARE].append(_means(amounts[ALL][:, draw]))
    if WORDS in amounts:
        rng = np.random.default_rng(0)
        kinds = amounts[WORDS].shape[1]
        for _ in range(replicates):
            drawn[WORDS].append(_means(amounts[WORDS][:, rng.integers(kinds, size=kinds)]))
    return drawn


def _means(amounts):
    """Every measure, mean over query heads."""
    profile = concentration_profile(amounts, TOP_SHARES)
    return {name: float(measured.mean()) for name, measured in profile.items()}


def _uniform(tokens):
    """Attention each position accumulates if every row attends equally to all its keys."""
    return np.cumsum(1.0 / np.arange(1, tokens + 1)[::-1])[::-1]


def position_bias(survey, measurements):
    """How much of accumulated attention is the sinks, and how much is being early.

    Enters: the share of all attention that the sinks receive; the share of heavy hitters (sinks
    apart) within the first tenth of the text, a tenth if position did not matter; Spearman's
    correlation of accumulated attention with position (sinks apart), as a sum and as a mean over
    the rows that see the position.

    Parameters
    ----------
    survey : Survey
    measurements : Measurements

    Returns
    -------
    DataFrame
        layer, kv_head, sink_share, early_hitters.
    """
    tokens, first = survey.tokens, min(survey.n_sink, survey.tokens)
    early = first + max(1, (tokens - first) // 10)
    lines, final = [], np.zeros(tokens)
    for head in survey.heads:
        members = head.history.members[-1]
        final += members
        lines.append(
            {
                "layer": head.layer,
                "kv_head": head.kv_head,
                "sink_share": head.rows.sink_mass.mean(),
                "early_hitters": members[:early].sum() / max(members.sum(), 1),
            }
        )
    heads = len(survey.heads)
    over = f"{tokens} rows x query heads; interval over blocks of the text"

    def enter(measure, unit, function):
        measurements.enter(
            "position", measure, "all heads", function, unit=unit, n=heads, over=over
        )

    mass = np.concatenate([head.rows.sink_mass for head in survey.heads]).mean(axis=0)
    enter("sink share", "share of attention", lambda: ratio_interval(mass, np.ones(tokens)))
    position = np.arange(first, tokens)
    is_early = position < early
    if final[first:].sum() > 0:
        # Exact, for this text: resampled stretches would carry their positions along, and the
        # interval would be about how often the first ones are drawn.
        measurements.note(
            "position", "hitters in the first tenth", "all heads",
            final[first:] @ is_early / final[first:].sum(), unit="share of heavy hitters", n=heads,
            over="kv_heads of this one text; counted, without an interval",
        )  # fmt: skip
    else:
        measurements.lack("position", "hitters in the first tenth", "no heavy hitters but sinks")
    received = survey.received()[first:]
    for measure, amount in (
        ("sum against position", received),
        ("mean per row against position", received / (tokens - position)),
    ):
        enter(
            measure,
            "Spearman",
            lambda amount=amount: partial_spearman(
                amount, position, (), resamples=block_draws(tokens - first, DRAWS)
            ),
        )
    return pd.DataFrame(lines)
