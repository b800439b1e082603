"""Is the attention a word receives a matter of co-occurrence, or of frequency and position?"""

import numpy as np
import pandas as pd

from h2o_theory.analysis.graph import CENTRALITIES, pair_counts
from h2o_theory.analysis.words import Words
from h2o_theory.statistics import (
    Interval,
    kendall,
    partial_permutation,
    partial_rank_correlation,
    partial_spearman,
    permutation_within,
    spearman,
)

__all__ = ["CONTROLS", "association", "association_by_layer", "label_control", "word_table"]

CONTROLS = ("frequency", "mean_position", "exposure")
"""What the partial correlation holds fixed. Exposure is the number of (row, occurrence) pairs in
which a row can see an occurrence of the word: frequency and position together."""


def word_table(words, received, n_sink, ranks):
    """Every kind of word with its attention, frequency, position and centralities.

    Occurrences among the sinks count for the graph but not for attention, frequency or
    position: the first word of a text would be credited with what any first token receives.

    Parameters
    ----------
    words : Words
    received : array [T]
        Attention accumulated by each position, mean over query heads.
    n_sink : int
    ranks : DataFrame
        One row per kind, such as from :func:`~h2o_theory.analysis.graph.centralities`; its
        columns are kept.

    Returns
    -------
    DataFrame
        word, attention (what all tokens of the word receive), frequency,
        attention_per_occurrence, mean_position, exposure, and the columns of ``ranks``; words
        that occur among the sinks only are left out.
    """
    tokens, kinds = len(received), len(words.kinds)
    place = words.positions()
    seen = place >= n_sink
    kind, place = words.kind[seen], place[seen]
    frequency = np.bincount(kind, minlength=kinds)
    bare = np.where(np.arange(tokens) >= n_sink, received, 0.0)
    table = pd.DataFrame(
        {
            "attention": words.per_kind(bare),
            "frequency": frequency,
            "mean_position": np.bincount(kind, place, kinds) / np.maximum(frequency, 1),
            "exposure": np.bincount(kind, tokens - place, kinds),
        }
    )
    table.insert(2, "attention_per_occurrence", table.attention / np.maximum(frequency, 1))
    table = pd.concat([ranks[["word"]], table, ranks.drop(columns="word")], axis=1)
    return table[frequency > 0].reset_index(drop=True)


def association(table, measurements, scope, *, replicates=1000):
    """Correlation of attention with each centrality, plain and with the controls held fixed.

    Parameters
    ----------
    table : DataFrame
        From :func:`word_table`.
    measurements : Measurements
    scope : str
        What the measurements calls this text.
    replicates : int
        Resamples and permutations.

    Returns
    -------
    DataFrame
        scope, centrality, statistic, value, low, high, p, words. The statistics: ``Spearman``
        and ``Kendall`` with bootstrap intervals over words (p of both: a plain permutation test of
        Spearman's); ``partial`` (Spearman, :data:`CONTROLS` held fixed, p of a
        Freedman-Lane permutation test); ``within frequency``: mean and range of Spearman's
        correlation when attention is permuted among words of equal frequency, and the share of
        permutations as far from their mean as the observed value.
    """
    lines = []
    attention = table.attention.to_numpy()
    for name in CENTRALITIES:
        if name not in table:
            continue
        x = table[name].to_numpy(dtype=float)
        found = measurements.attempt(
            "co-occurrence", f"{name}, {scope}", lambda x=x: _plain(x, attention, table, replicates)
        )
        for statistic, value, low, high, p in found or ():
            lines.append([scope, name, statistic, value, low, high, p, len(table)])
        controls = [table[control].to_numpy(dtype=float) for control in CONTROLS]
        found = measurements.attempt(
            "co-occurrence",
            f"{name}, {scope}, controls held fixed",
            lambda x=x, controls=controls: _fixed(x, attention, controls, replicates),
        )
        for statistic, value, low, high, p in found or ():
            lines.append([scope, name, statistic, value, low, high, p, len(table)])
    for line in lines:
        if line[2] != "within frequency":
            _note(measurements, scope, line)
    return pd.DataFrame(
        lines,
        columns=["scope", "centrality", "statistic", "value", "low", "high", "p", "words"],
    )


def _note(measurements, scope, line):
    measurements.note(
        "co-occurrence", f"{line[1]} {line[2]}", scope, Interval(*line[3:6]),
        unit="rank correlation", n=line[7], over="words; interval over resampled words",
    )  # fmt: skip


def _plain(x, attention, table, replicates):
    rho = spearman(x, attention, replicates=replicates)
    tau = kendall(x, attention, replicates=max(50, replicates // 5))
    everyone = np.zeros(len(x), dtype=int)
    chance = permutation_within(x, attention, everyone, replicates=replicates)
    equal = permutation_within(x, attention, table.frequency, replicates=replicates)
    return [
        ("Spearman", *rho, chance.p),
        ("Kendall", *tau, chance.p),
        ("within frequency", equal.mean, equal.low, equal.high, equal.p),
    ]


def _fixed(x, attention, controls, replicates):
    partial = partial_spearman(x, attention, controls, replicates=replicates)
    test = partial_permutation(x, attention, controls, replicates=replicates)
    return [("partial", *partial, test.p)]


def association_by_layer(words, survey, table, measurements, *, replicates=200):
    """Co-occurrence counts against the attention of each layer, plain and with controls fixed.

    Parameters
    ----------
    words : Words
    survey : Survey
    table : DataFrame
        From :func:`word_table`.
    measurements : Measurements
    replicates : int

    Returns
    -------
    DataFrame
        layer, spearman, spearman_low, spearman_high, partial, partial_low, partial_high, words.
    """
    first = min(survey.n_sink, survey.tokens)
    kept = np.isin(words.kinds, table.word)
    count = table.cooccurrences.to_numpy(dtype=float)
    controls = [table[control].to_numpy(dtype=float) for control in CONTROLS]
    lines = []
    for layer in survey.layers:
        received = survey.received(layer)
        received[:first] = 0
        attention = words.per_kind(received)[kept]

        def both(attention=attention):
            return [
                partial_spearman(count, attention, fixed, replicates=replicates)
                for fixed in ((), controls)
            ]

        found = measurements.attempt("co-occurrence", f"layer {layer}", both)
        if found is not None:
            plain, fixed = found
            lines.append([layer, *plain, *fixed, len(table)])
    names = ("spearman", "spearman_low", "spearman_high", "partial", "partial_low", "partial_high")
    return pd.DataFrame(lines, columns=["layer", *names, "words"])


def label_control(words, received, n_sink, window, *, times=200, seed=0):
    """Co-occurrence counts against attention when the words change places but attention stays.

    The kinds of words are permuted over the places of the text. Every kind keeps its frequency;
    which words occur together, and which attention goes with which word, is left to chance.

    Parameters
    ----------
    words : Words
    received : array [T]
        As in :func:`word_table`.
    n_sink, window : int
    times : int
        Permutations.
    seed : int

    Returns
    -------
    DataFrame
        times rows: spearman, partial.

    Raises
    ------
    NotEnoughData
        If a correlation is not defined.
    """
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(times):
        moved = Words(words.kinds, rng.permutation(words.kind), words.token_word)
        first, second, count = pair_counts(moved.kind, len(words.kinds), window)
        degree = np.bincount(first, count, len(words.kinds))
        degree = degree + np.bincount(second, count, len(words.kinds))
        ranks = pd.DataFrame({"word": words.kinds, "cooccurrences": degree})
        table = word_table(moved, received, n_sink, ranks)
        pair = table.cooccurrences, table.attention
        controls = [table[control] for control in CONTROLS]
        plain, fixed = (partial_rank_correlation(*pair, held) for held in ((), controls))
        lines.append({"spearman": plain, "partial": fixed})
    return pd.DataFrame(lines)
