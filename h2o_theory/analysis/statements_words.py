"""What the numbers on words and on laws say.

Each function takes (survey, tables, measurements) and returns a verdict and a sentence, or None
where the numbers are missing.
"""

from h2o_theory.analysis.statements import plain_number

__all__ = ["beyond_frequency", "cooccurrence", "power_law", "shuffled", "texts"]


def texts(survey, tables, measurements):
    """Agreement over the words that texts share."""
    measures = measurements.found()
    rows = measures[(measures.topic == "texts")]
    names = rows.scope.unique()
    sentences, verdicts = [], []
    for name in names:
        plain, fixed, rate = (
            measurements.get("texts", measure, name)
            for measure in (
                "attention",
                "attention, frequencies fixed",
                "attention per row and occurrence",
            )
        )
        if plain is None or fixed is None or rate is None:
            continue
        n = int(rows[rows.scope == name].n.iloc[0])
        sentences.append(
            f"Over the {n} words shared with {name}, accumulated attention correlates with "
            f"Spearman {plain_number(plain)}, with both frequencies held fixed "
            f"{plain_number(fixed)}, and attention per row and occurrence {plain_number(rate)}."
        )
        verdicts.append(fixed.low > 0)
    if not sentences:
        return None
    verdict = "supported" if all(verdicts) else "not supported"
    if any(verdicts) and not all(verdicts):
        verdict = "partly supported"
    return verdict, " ".join(sentences)


def power_law(survey, tables, measurements):
    """Fits and tests of every sample."""
    table = tables.get("power_law")
    if table is None or table.empty:
        return None
    whole = table[table.scope == "all heads"]
    layers = table[table.scope != "all heads"]
    sentences = []
    for _, row in whole.iterrows():
        better = [
            name
            for name in ("log-normal", "exponential", "truncated power law")
            if row[f"{name.replace('-', '_').replace(' ', '_')}_verdict"] == name
        ]
        sentences.append(
            f"{row['sample']}: exponent {row.exponent:.2f} [{row.low:.2f}, {row.high:.2f}] on the "
            f"largest {row['tail']} of {row['values']} values, goodness of fit p = {row.p:.3f} "
            f"[{row.p_low:.3f}, {row.p_high:.3f}]"
            + (f", better: {' and '.join(better)}" if better else "")
            + f": {row.verdict}"
        )
    kept = (layers.verdict == "not ruled out").sum()
    text = ". ".join(s[0].upper() + s[1:] for s in sentences)
    if len(layers):
        text += (
            f". Of {len(layers)} layers (positions without sinks), a power law is not ruled out "
            f"in {kept}"
        )
    ruled_out = (table.verdict == "ruled out").mean()
    verdict = (
        "not supported" if ruled_out == 1 else "supported" if ruled_out == 0 else "partly supported"
    )
    return verdict, text + ". Not ruled out is not proved: a log-normal tail often fits as well."


def cooccurrence(survey, tables, measurements):
    """The plain correlation."""
    plain = measurements.get("co-occurrence", "cooccurrences Spearman", "text")
    tau = measurements.get("co-occurrence", "cooccurrences Kendall", "text")
    if plain is None or tau is None:
        return None
    return ("supported" if plain.low > 0.3 else "not supported"), (
        f"Over {len(tables['words'])} words, accumulated attention correlates with co-occurrence "
        f"counts: Spearman {plain_number(plain)}, Kendall {plain_number(tau)}."
    )


def beyond_frequency(survey, tables, measurements):
    """The correlation with frequency and position held fixed."""
    partial = measurements.get("co-occurrence", "cooccurrences partial", "text")
    table = tables.get("cooccurrence")
    if partial is None or table is None:
        return None
    rows = table[(table.scope == "text") & (table.centrality == "cooccurrences")]
    within = rows[rows.statistic == "within frequency"]
    observed = rows[rows.statistic == "Spearman"].value.iloc[0]
    fixed = rows[rows.statistic == "partial"]
    verdict = "supported" if partial.low > 0 and fixed.p.iloc[0] < 0.05 else "not supported"
    sentence = (
        f"With frequency, mean position and exposure held fixed, the correlation is "
        f"{plain_number(partial)} (permutation p = {fixed.p.iloc[0]:.3f}). "
    )
    if len(within):
        row = within.iloc[0]
        sentence += (
            f"Permuting attention among words of equal frequency leaves {row.value:.3f} "
            f"[{row.low:.3f}, {row.high:.3f}] of the observed {observed:.3f}: "
        )
        sentence += (
            "frequency explains the relation."
            if observed - row.value < 0.05
            else "frequency explains part of the relation."
        )
    return verdict, sentence


def shuffled(survey, tables, measurements):
    """The correlation without the order of the words."""
    plain = measurements.get("co-occurrence", "cooccurrences Spearman", "text")
    again = measurements.get("shuffled", "Spearman", "control")
    fixed = measurements.get("shuffled", "partial", "control")
    if plain is None or again is None or fixed is None:
        return None
    kind = tables["control"].kind.iloc[0]
    verdict = "supported" if again.high < plain.low else "not supported"
    return verdict, (
        f"{kind[0].upper()}{kind[1:]}: Spearman {plain_number(again)} against "
        f"{plain_number(plain)} on the text as written, and {plain_number(fixed)} with frequency "
        f"and position held fixed."
    )
