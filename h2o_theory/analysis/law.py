"""Does accumulated attention follow a power law?"""

import pandas as pd

from h2o_theory.statistics import compare_laws, fit_power_law, goodness_of_fit

__all__ = ["power_laws"]

PLAUSIBLE = 0.1
"""A goodness-of-fit p-value at or below it rules the power law out (Clauset, Shalizi, Newman)."""


def power_laws(survey, words, measurements, *, replicates=500, progress=None):
    """Fit a power law to accumulated attention and test it, by position and by word.

    The samples: all positions; positions without the sinks; words (their occurrences among the
    sinks left out); all of these as means over every query head; and the positions without the
    sinks of each layer, with a fifth of the replicates.

    Parameters
    ----------
    survey : Survey
    words : Words or None
    measurements : Measurements
        Receives the exponent of each whole-model sample, or why there is none.
    replicates : int
        For the goodness of fit; the interval of the exponent takes 200 resamples at most.
    progress : callable (done, total, label), optional

    Returns
    -------
    DataFrame
        One row per sample: sample, scope, values, tail, tail_share, x_min, exponent, low, high,
        distance, p, p_low, p_high, for each alternative law its log-likelihood ratio (positive
        speaks for the power law), p-value and verdict; and ``verdict``: "ruled out" if
        p <= 0.1 or an alternative fits the same tail better, else "not ruled out".
    """
    first = min(survey.n_sink, survey.tokens)
    received = survey.received()
    samples = [
        ("positions", "all heads", received, replicates),
        ("positions without sinks", "all heads", received[first:], replicates),
    ]
    if words is None:
        measurements.lack("power law", "words", "words were not asked for")
    else:
        bare = received.copy()
        bare[:first] = 0
        samples.append(("words without sinks", "all heads", words.per_kind(bare), replicates))
    for layer in survey.layers:
        amounts = survey.received(layer)[first:]
        fewer = max(20, replicates // 5)
        samples.append(("positions without sinks", f"layer {layer}", amounts, fewer))
    lines = []
    for done, (sample, scope, values, times) in enumerate(samples, start=1):
        line = measurements.attempt(
            "power law", f"{sample}, {scope}", lambda v=values, n=times: _line(v, n)
        )
        if line is not None:
            lines.append({"sample": sample, "scope": scope, **line})
            if scope == "all heads":
                measurements.note(
                    "power law", "exponent", sample, line.pop("interval"),
                    unit="exponent", n=line["tail"],
                    over="values in the tail; interval over resampled values",
                )  # fmt: skip
        if progress:
            progress(done, len(samples), "power laws")
    return pd.DataFrame(lines).drop(columns="interval", errors="ignore")


def _line(values, replicates):
    law = fit_power_law(values, replicates=min(replicates, 200))
    fit = goodness_of_fit(values, law, replicates=replicates)
    line = {
        "values": law.values,
        "tail": law.tail,
        "tail_share": law.tail / law.values,
        "x_min": law.x_min,
        "exponent": law.exponent,
        "low": law.exponent_interval.low,
        "high": law.exponent_interval.high,
        "distance": law.distance,
        "p": fit.value,
        "p_low": fit.low,
        "p_high": fit.high,
        "interval": law.exponent_interval,
    }
    better = []
    for test in compare_laws(values, law):
        name = test.alternative.replace("-", "_").replace(" ", "_")
        line[f"{name}_log_ratio"], line[f"{name}_p"] = test.log_ratio, test.p
        line[f"{name}_verdict"] = test.verdict
        if test.verdict == test.alternative:
            better.append(test.alternative)
    ruled_out = fit.value <= PLAUSIBLE or better
    return line | {"verdict": "ruled out" if ruled_out else "not ruled out"}
