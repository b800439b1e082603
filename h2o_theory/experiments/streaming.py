"""H2O against sinks and a window on a long text, by running perplexity."""

import numpy as np
import pandas as pd

from h2o_theory.experiments.result import ExperimentResult
from h2o_theory.experiments.study import FULL, policy_arm

__all__ = ["long_text"]

SINKS = "sinks + recent"
STRETCHES = 32


def long_text(study, *, policies=("h2o", "recent"), budget="256", positions="original"):
    """Loss along a long text at equal budget, and perplexity by stretches of it.

    A text longer than the model's context is read with positions counted within the cache, as
    StreamingLLM does; there is no full cache to compare with then, and the arms are measured
    against sinks and a window.

    Parameters
    ----------
    study : Study
        Usually with one long window.
    policies : sequence of str
        Beside sinks and a window.
    budget : str
    positions : {"original", "slot"}
        For all arms alike.

    Returns
    -------
    ExperimentResult
        ``extra["running"]`` has the perplexity of each arm on each of 32 stretches, means over
        the windows.
    """
    context = getattr(study.model.model.config, "max_position_embeddings", None)
    fits = context is None or study.tokens <= context
    options = {"positions": positions, "compared": fits}
    sinks = policy_arm("sink", budget, study.tokens, label=SINKS, **options)
    others = [
        policy_arm(policy, budget, study.tokens, label=policy, **options)
        for policy in policies
        if policy != "sink"
    ]
    found = study.compare([sinks, *others], FULL if fits else sinks)
    findings = {arm.label: found.finding(arm.label) for arm in (sinks, *others) if fits}
    said = []
    for arm in others:
        gap = findings[f"{arm.label} over {SINKS}"] = found.finding(arm.label, SINKS)
        said.append(f"{arm.label} {gap['value']:+.4f} [{gap['low']:.4f}, {gap['high']:.4f}]")
    return ExperimentResult.of(
        study,
        "streaming",
        "On a long text at equal budget, is H2O's perplexity below that of sinks and a window?",
        f"nats per token over {SINKS} at {budget}, T = {study.tokens}, {positions} positions: "
        + "; ".join(said),
        findings,
        found.table(),
        extra={"running": _running(found, study.tokens)},
        budget=budget,
        positions=positions,
        base=found.base,
    )


def _running(found, tokens):
    """Perplexity by stretch: arm, its policy, first and last + 1 token of the stretch."""
    lines = []
    edges = np.linspace(0, tokens, min(STRETCHES, tokens // 2) + 1).astype(int)
    for label in found.labels:
        losses = found.losses(label).reshape(-1, tokens)
        for first, last in zip(edges[:-1], edges[1:], strict=True):
            perplexity = float(np.exp(np.nanmean(losses[:, first:last])))
            arm = {"arm": label, "policy_name": found.arms[label].policy_name}
            lines.append(arm | {"first": first, "last": last, "perplexity": perplexity})
    return pd.DataFrame(lines)
