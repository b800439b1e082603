"""Do two texts agree on which words are heavy hitters?"""

import numpy as np
import pandas as pd

from h2o_theory.analysis.association import word_table
from h2o_theory.statistics import (
    partial_spearman,
    percentile_interval,
    spearman,
    top_count,
)
from h2o_theory.statistics.rank import LEAST_PAIRS

__all__ = ["compare_texts"]


def compare_texts(name, first, second, n_sink, share, measurements, *, replicates=1000, seed=0):
    """Words that two texts share: do the same ones receive much attention in both?

    Entered in the measurements: Spearman's correlation over shared words of accumulated attention,
    plain and with both frequencies held fixed; of attention per (row, occurrence) pair, which no
    frequency or position enters; and the overlap of the top ``share`` of the shared words by
    accumulated attention, beside that of random sets.

    Parameters
    ----------
    name : str
        Of the second text.
    first, second : pair of Words and array [T]
        Words and accumulated attention of each text.
    n_sink : int
    share : float
    measurements : Measurements
    replicates, seed : int
        Resamples of the shared words.

    Returns
    -------
    DataFrame
        word, and attention, frequency and exposure in each text; shared words only.
    """
    tables = []
    for words, received in (first, second):
        ranks = pd.DataFrame({"word": words.kinds})
        tables.append(word_table(words, received, n_sink, ranks)[
            ["word", "attention", "frequency", "exposure"]
        ])  # fmt: skip
    both = tables[0].merge(tables[1], on="word", suffixes=("_here", "_there"))
    here, there = both.attention_here.to_numpy(), both.attention_there.to_numpy()
    held = [both.frequency_here.to_numpy(), both.frequency_there.to_numpy()]
    rates = [both[f"attention_{side}"] / both[f"exposure_{side}"] for side in ("here", "there")]
    over, n = "shared words; interval over resampled words", len(both)
    for measure, function in (
        ("attention", lambda: spearman(here, there, replicates=replicates)),
        (
            "attention, frequencies fixed",
            lambda: partial_spearman(here, there, held, replicates=replicates),
        ),
        ("attention per row and occurrence", lambda: spearman(*rates, replicates=replicates)),
    ):
        measurements.enter(
            "texts", measure, name, function, unit="rank correlation", n=n, over=over
        )
    if n < LEAST_PAIRS:
        measurements.lack("texts", f"overlap, {name}", f"{n} shared words")
        return both
    m = top_count(share, n)
    rng = np.random.default_rng(seed)
    drawn = [_overlap(here[i], there[i], m) for i in rng.integers(n, size=(replicates, n))]
    measurements.note(
        "texts", "overlap of heavy hitters", name,
        percentile_interval(_overlap(here, there, m), drawn),
        unit="share of the set", n=n, over=over,
    )  # fmt: skip
    measurements.note(
        "texts", "overlap of random sets", name, m / n,
        unit="share of the set", n=n, over="exact",
    )  # fmt: skip
    return both


def _overlap(a, b, m):
    """Share of the m largest of a that are among the m largest of b."""
    top = np.argsort(-a, kind="stable")[:m]
    return np.isin(top, np.argsort(-b, kind="stable")[:m]).mean()
