"""Is the attention a word receives a matter of co-occurrence, or of frequency and position?"""

import numpy as np
import pandas as pd

from h2o_theory.analysis.graph import CENTRALITIES, pair_counts
from h2o_theory.statistics import (
    kendall,
    partial_permutation,
    partial_spearman,
    permutation_within,
    spearman,
)

__all__ = ["CONTROLS", "association", "label_control", "word_table"]

CONTROLS = ("frequency", "mean_position", "exposure")
"""What the partial correlation holds fixed. Exposure is the number of (row, occurrence) pairs in
which a row can see an occurrence of the word: frequency and position together."""


def word_table(survey, words, ranks):
    """Every kind of word with its attention, frequency, position and centralities.

    Occurrences among the sinks count for the graph but not for attention, frequency or
    position: the first word of a text would be credited with what any first token receives.

    Parameters
    ----------
    survey : Survey
    words : Words
    ranks : DataFrame
        From :func:`~h2o_theory.analysis.graph.centralities`.

    Returns
    -------
    DataFrame
        word, attention (mean over query heads of what all its tokens receive), frequency,
        attention_per_occurrence, mean_position, exposure, hitter_share (share of kv_heads and
        tokens of the word that are heavy hitters at the end), and the centralities; words that
        occur among the sinks only are left out.
    """
    tokens, first = survey.tokens, min(survey.n_sink, survey.tokens)
    bare = survey.received()
    bare[:first] = 0
    place = words.positions()
    seen = place >= first
    kinds = len(words.kinds)
    frequency = np.bincount(words.kind[seen], minlength=kinds)
    position = np.bincount(words.kind[seen], place[seen], kinds)
    exposure = np.bincount(words.kind[seen], tokens - place[seen], kinds)
    members = np.mean([head.history.members[-1] for head in survey.heads], axis=0)
    inside = np.zeros(tokens)
    inside[first:] = 1
    table = ranks.copy()
    table.insert(1, "attention", words.per_kind(bare))
    table.insert(2, "frequency", frequency)
    table = table[frequency > 0].copy()
    kept = frequency > 0
    table.insert(3, "attention_per_occurrence", table.attention / table.frequency)
    table.insert(4, "mean_position", position[kept] / frequency[kept])
    table.insert(5, "exposure", exposure[kept])
    pieces = words.per_kind(inside)[kept]
    table.insert(6, "hitter_share", words.per_kind(members)[kept] / np.maximum(pieces, 1))
    return table.reset_index(drop=True)


def association(table, ledger, scope, *, replicates=1000):
    """Correlation of attention with each centrality, plain and with the controls held fixed.

    Parameters
    ----------
    table : DataFrame
        From :func:`word_table`.
    ledger : Ledger
    scope : str
        What the ledger calls this text.
    replicates : int
        Resamples and permutations.

    Returns
    -------
    DataFrame
        scope, centrality, statistic, value, low, high, p, words. The statistics: ``Spearman``
        and ``Kendall`` with bootstrap intervals over words (Spearman with the p of a plain
        permutation test); ``partial`` (Spearman, :data:`CONTROLS` held fixed, p of a
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
        found = ledger.attempt(
            "co-occurrence", f"{name}, {scope}", lambda x=x: _plain(x, attention, table, replicates)
        )
        for statistic, value, low, high, p in found or ():
            lines.append([scope, name, statistic, value, low, high, p, len(table)])
        controls = [table[control].to_numpy(dtype=float) for control in CONTROLS]
        found = ledger.attempt(
            "co-occurrence",
            f"{name}, {scope}, controls held fixed",
            lambda x=x, controls=controls: _fixed(x, attention, controls, replicates),
        )
        for statistic, value, low, high, p in found or ():
            lines.append([scope, name, statistic, value, low, high, p, len(table)])
    for line in lines:
        if line[2] != "within frequency":
            _note(ledger, scope, line)
    return pd.DataFrame(
        lines,
        columns=["scope", "centrality", "statistic", "value", "low", "high", "p", "words"],
    )


def _note(ledger, scope, line):
    from h2o_theory.statistics import Interval

    ledger.note(
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


def label_control(survey, words, window, *, times=100, seed=0):
    """Co-occurrence counts against attention when the words change places but attention stays.

    The kinds of words are permuted over the places of the text. Every kind keeps its frequency;
    which words occur together, and which attention goes with which word, is left to chance.

    Parameters
    ----------
    survey : Survey
    words : Words
    window : int
    times : int
        Permutations.
    seed : int

    Returns
    -------
    DataFrame
        times rows: spearman, partial.
    """
    tokens, first = survey.tokens, min(survey.n_sink, survey.tokens)
    bare = survey.received()
    bare[:first] = 0
    amount, place = words.per_word(bare), words.positions()
    kinds = len(words.kinds)
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(times):
        kind = rng.permutation(words.kind)
        seen = place >= first
        frequency = np.bincount(kind[seen], minlength=kinds)
        kept = frequency > 0
        a, b, count = pair_counts(kind, kinds, window)
        degree = np.bincount(a, count, kinds) + np.bincount(b, count, kinds)
        attention = np.bincount(kind, amount, kinds)
        position = np.bincount(kind[seen], place[seen], kinds)[kept] / frequency[kept]
        exposure = np.bincount(kind[seen], tokens - place[seen], kinds)[kept]
        pair = degree[kept], attention[kept]
        lines.append(
            {
                "spearman": spearman(*pair, replicates=1).value,
                "partial": partial_spearman(
                    *pair, (frequency[kept], position, exposure), replicates=1
                ).value,
            }
        )
    return pd.DataFrame(lines)
