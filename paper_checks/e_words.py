"""Part E, heavy hitters and words: power law, and co-occurrence with its rivals held fixed."""

import functools

import numpy as np

from h2o_theory.analysis.graph import centralities, cooccurrence_graph
from h2o_theory.analysis.pieces import token_bytes
from h2o_theory.analysis.words import words_of
from h2o_theory.statistics import (
    compare_laws,
    fit_power_law,
    goodness_of_fit,
    partial_permutation,
    partial_spearman,
    spearman,
)
from paper_checks.finding import NOT_REPRODUCED, REPRODUCED, CheckFinding
from paper_checks.recorded import committed_trace, described, heads

__all__ = ["obs_cooccurrence", "obs_power_law"]

N_SINK = 4
"""First positions left out of words and of one of the fits: sinks are their own matter."""
PLAUSIBLE = 0.1
"""A goodness-of-fit p at or below it rules the power law out (Clauset, Shalizi, Newman)."""
STRONG = 0.5
"""A rank correlation counts as strong if its interval lies above; and as one with co-occurrence if
something is left of it with frequency and place held fixed, as every word that is often there
receives much."""
REPLICATES = 200


@functools.cache
def _received():
    """Accumulated attention of each position, mean over all query heads of the recording."""
    trace = committed_trace()
    sums = [trace.rows(layer, head).mean(axis=0).sum(axis=0) for layer, head in heads()]
    return np.mean(sums, axis=0)


@functools.cache
def _words():
    """Words of the text, and what the tokens of each receive, sinks left out."""
    words = words_of(token_bytes(committed_trace()))
    bare = _received().copy()
    bare[:N_SINK] = 0
    return words, bare


def obs_power_law() -> CheckFinding:
    """Maximum-likelihood fit, goodness of fit by bootstrap, and rival laws on the same tail."""
    words, bare = _words()
    samples = {
        "words without sinks": words.per_kind(bare),
        "positions without sinks": _received()[N_SINK:],
        "all positions": _received(),
    }
    numbers, possible = {}, []
    for name, values in samples.items():
        law = fit_power_law(values, replicates=REPLICATES)
        fit = goodness_of_fit(values, law, replicates=REPLICATES)
        tests = compare_laws(values, law)
        rivals = [test.alternative for test in tests if test.verdict == test.alternative]
        possible.append(fit.value > PLAUSIBLE and not rivals)
        low, high = law.exponent_interval.low, law.exponent_interval.high
        numbers[name] = (
            f"exponent {law.exponent:.2f} [{low:.2f}, {high:.2f}] above x_min = {law.x_min:.3g}, "
            f"{law.tail} of {law.values} values; p = {fit.value:.2f} [{fit.low:.2f}, "
            f"{fit.high:.2f}]; better alternatives: {', '.join(rivals) or 'none'}; likelihood "
            "ratios (p): "
            + ", ".join(f"{test.alternative} {test.log_ratio:.2f} ({test.p:.2f})" for test in tests)
        )
    return CheckFinding(
        REPRODUCED if possible[0] and possible[1] else NOT_REPRODUCED,
        f"A power law of the upper tail is {_word(possible[0])} for words and "
        f"{_word(possible[1])} for positions without the first {N_SINK}. By word: "
        f"{numbers['words without sinks']}. Not being ruled out is no proof: see the likelihood "
        "ratios, positive for the power law, against rivals on the same tail.",
        f"mean over all query heads of {len(heads())} kv_heads; {described()}; x_min by "
        f"Kolmogorov-Smirnov, {REPLICATES} bootstrap replicates",
        {name: numbers[name] for name in list(samples)[1:]},
    )


def _word(possible):
    return "not ruled out" if possible else "ruled out"


def obs_cooccurrence() -> CheckFinding:
    """Rank correlation with co-occurrence counts; what is left with frequency and place fixed."""
    words, bare = _words()
    trace = committed_trace()
    table = centralities(cooccurrence_graph(words))
    place = words.positions()
    seen = place >= N_SINK
    kinds = len(words.kinds)
    frequency = np.bincount(words.kind[seen], minlength=kinds)
    kept = frequency > 0
    exposure = np.bincount(words.kind[seen], trace.tokens - place[seen], kinds)[kept]
    position = (np.bincount(words.kind[seen], place[seen], kinds)[kept]) / frequency[kept]
    attention = words.per_kind(bare)[kept]
    degree = table[table.columns[1]].to_numpy(dtype=float)[kept]
    plain = spearman(degree, attention)
    controls = [frequency[kept], position, exposure]
    partial = partial_spearman(degree, attention, controls)
    left = partial_permutation(degree, attention, controls)
    by_frequency = spearman(frequency[kept].astype(float), attention)
    return CheckFinding(
        REPRODUCED if plain.low > STRONG and left.value > left.high else NOT_REPRODUCED,
        f"Spearman's correlation of a word's attention with its co-occurrence count is "
        f"{plain.value:.2f} [{plain.low:.2f}, {plain.high:.2f}] (strong: above {STRONG}); with "
        f"plain frequency it is {by_frequency.value:.2f} [{by_frequency.low:.2f}, "
        f"{by_frequency.high:.2f}]. With frequency, mean position and the number of rows that see "
        f"the word held fixed, {partial.value:.2f} [{partial.low:.2f}, {partial.high:.2f}] is left "
        f"of the former (chance: {left.low:.2f} to {left.high:.2f}).",
        f"{int(kept.sum())} distinct words; {described()}; intervals over resampled words",
        {"co-occurrence count": table.columns[1]},
    )
