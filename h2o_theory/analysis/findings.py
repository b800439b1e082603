"""What the numbers say, one sentence each, negative findings as plainly as positive ones."""

from dataclasses import dataclass

from h2o_theory.analysis import statements as rows
from h2o_theory.analysis import statements_words as words

__all__ = ["VERDICTS", "Statement", "findings"]

VERDICTS = ("supported", "not supported", "partly supported", "measured", "not enough data")
"""``measured``: a description that no claim stands behind."""


@dataclass(frozen=True)
class Statement:
    """One statement.

    Attributes
    ----------
    id : str
    claim : str
        The claim examined, or the question, in a few words.
    verdict : str
        One of :data:`VERDICTS`.
    sentence : str
        What was found, with its interval: "0.88 [0.85, 0.90]" is an estimate and its 95 %
        interval.
    """

    id: str
    claim: str
    verdict: str
    sentence: str


def findings(survey, tables, measurements):
    """All statements about one trace, in the order of the page.

    Parameters
    ----------
    survey : Survey
    tables : dict of str to DataFrame
        As :func:`~h2o_theory.analysis.analyze` made them.
    measurements : Measurements

    Returns
    -------
    list of Statement
        A statement whose numbers are missing has the verdict "not enough data".
    """
    questions = (
        (
            "concentration",
            "a small share of positions receives most attention",
            rows.concentration,
        ),
        ("position", "heavy hitters are the first tokens", rows.position),
        ("local-global", "past attention tells future attention", rows.local_global),
        ("persistence", "a heavy hitter stays one", rows.persistence),
        ("agreement", "heads and layers agree on the heavy hitters", rows.agreement),
        ("texts", "texts agree on the heavy hitters", words.texts),
        ("power-law", "accumulated attention follows a power law", words.power_law),
        ("co-occurrence", "attention follows co-occurrence", words.cooccurrence),
        (
            "frequency",
            "co-occurrence matters beyond frequency and position",
            words.beyond_frequency,
        ),
        ("shuffled", "the relation needs the order of the words", words.shuffled),
        ("sparsity", "attention is over 95 % sparse in almost all layers", rows.sparsity),
        ("20x", "95 % sparsity allows a cache 20 times smaller", rows.cache),
    )
    found = []
    for name, claim, examine in questions:
        answer = examine(survey, tables, measurements)
        verdict, sentence = answer or ("not enough data", _why(name, measurements))
        found.append(Statement(name, claim, verdict, sentence))
    return found


_TOPICS = {
    "concentration": "concentration",
    "position": "position",
    "local-global": "evolution",
    "persistence": "persistence",
    "agreement": "overlap",
    "texts": "texts",
    "power-law": "power law",
    "co-occurrence": "co-occurrence",
    "frequency": "co-occurrence",
    "shuffled": "shuffled",
    "sparsity": "sparsity",
    "20x": "support",
}


def _why(name, measurements):
    missing = measurements.missing()
    reasons = missing[missing.topic == _TOPICS[name]].reason
    return f"Not enough data: {reasons.iloc[0] if len(reasons) else 'nothing to measure'}."
