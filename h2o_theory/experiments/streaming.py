"""H2O against sinks and a window on a long text, by running perplexity."""

import numpy as np

from h2o_theory.experiments.result import ExperimentResult
from h2o_theory.experiments.study import FULL, policy_arm

__all__ = ["long_text"]


def long_text(study, *, budget="256", stretch=512, slots=False):
    """Loss along a long text at equal budget, in stretches.

    Parameters
    ----------
    study : Study
        Usually with one long window.
    budget : str
    stretch : int
        Tokens of which each line of the table is a mean.
    slots : bool
        Also sinks and a window with positions counted within the cache, as StreamingLLM does; one
        token at a time, so slower.

    Returns
    -------
    ExperimentResult
    """
    arms = [
        policy_arm(name, budget, study.tokens, label=label)
        for name, label in (("h2o", "h2o"), ("sink", "sinks + recent"), ("recent", "recent"))
    ]
    if slots:
        label = "sinks + recent, slots"
        arms.append(policy_arm("sink", budget, study.tokens, label=label, positions="slot"))
    found = study.compare(arms)
    labels = [FULL.label, *(arm.label for arm in arms)]
    table = found.table()
    for number, start in enumerate(range(0, study.tokens, stretch)):
        table[f"ppl_{start}"] = [
            _stretch_perplexity(found.losses(label), study.tokens, number, stretch)
            for label in labels
        ]
    findings = {arm.label: found.finding(arm.label) for arm in arms}
    findings["h2o over sinks + recent"] = found.finding("h2o", "sinks + recent")
    difference = findings["h2o over sinks + recent"]
    return ExperimentResult.of(
        study,
        "streaming",
        "On a long text at equal budget, is H2O's perplexity below that of sinks and a window?",
        f"H2O over sinks + recent at {budget}, T = {study.tokens}: {difference['value']:+.4f} nats "
        f"per token [{difference['low']:.4f}, {difference['high']:.4f}]",
        findings,
        table,
        budget=budget,
        stretch=stretch,
    )


def _stretch_perplexity(losses, tokens, number, stretch):
    part = losses.reshape(-1, tokens)[:, number * stretch : (number + 1) * stretch]
    return float(np.exp(np.nanmean(part)))
