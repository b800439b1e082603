"""Self-BLEU: how much samples repeat one another."""

import math
from collections import Counter

from h2o_theory.errors import BadArgument

__all__ = ["bleu", "self_bleu"]

ORDER = 4
SMALL = 0.1
"""Stands for a count of 0, so that one missing order does not erase the others."""


def bleu(sample, references):
    r"""BLEU of one sequence against several references.

    .. math:: \min(1, e^{1 - r/c}) \prod_{n=1}^{4} p_n^{1/4}

    with p_n the share of the sample's n-grams that a reference holds, each counted at most as
    often as in the reference that has it most; c the sample's length and r that of the reference
    nearest to it. Orders longer than the sample are left out.

    Source: Papineni et al. 2002; zero counts become 0.1 (Chen and Cherry 2014, method 1).

    Parameters
    ----------
    sample : sequence of hashable
        Tokens or words.
    references : list of sequences

    Returns
    -------
    float in [0, 1]
    """
    sample, references = tuple(sample), [tuple(reference) for reference in references]
    if not sample or not references:
        raise BadArgument("BLEU needs a sample and a reference", where="sample, references")
    logs = []
    for n in range(1, min(ORDER, len(sample)) + 1):
        counts, best = _ngrams(sample, n), Counter()
        for reference in references:
            best |= _ngrams(reference, n)
        matched = (counts & best).total()
        logs.append(math.log((matched or SMALL) / counts.total()))
    nearest = min((abs(len(r) - len(sample)), len(r)) for r in references)[1]
    penalty = min(0.0, 1 - nearest / len(sample))
    return math.exp(penalty + sum(logs) / len(logs))


def self_bleu(samples):
    """Mean BLEU of each sample against all others: 1 if they are the same, low if diverse.

    Source: Zhu et al. 2018 (Texygen). Raises BadArgument for fewer than two samples.
    """
    samples = list(samples)
    if len(samples) < 2:
        raise BadArgument(
            "Self-BLEU compares samples", where="samples", got=len(samples), expected="at least 2"
        )
    return sum(
        bleu(sample, samples[:i] + samples[i + 1 :]) for i, sample in enumerate(samples)
    ) / len(samples)


def _ngrams(tokens, n):
    return Counter(zip(*(tokens[i:] for i in range(n)), strict=False))
