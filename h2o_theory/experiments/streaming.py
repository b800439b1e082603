"""H2O against sinks and a window on a long text, by running perplexity."""

import numpy as np
import pandas as pd

from h2o_theory.experiments.result import ExperimentResult
from h2o_theory.experiments.study import FULL, policy_arm

__all__ = ["long_text"]

SINKS = "sinks + recent"
STRETCHES = 32


def long_text(study, *, budget="256", positions="original"):
    """Loss along a long text at equal budget, and perplexity by stretches of it.

    A text longer than the model's context is read with positions counted within the cache, as
    StreamingLLM does; there is no full cache to compare with then, and the arms are measured
    against sinks and a window.

    Parameters
    ----------
    study : Study
        Usually with one long window.
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
    arms = [
        policy_arm(name, budget, study.tokens, label=label, positions=positions, compared=fits)
        for name, label in (("sink", SINKS), ("h2o", "h2o"), ("recent", "recent"))
    ]
    found = study.compare(arms, FULL if fits else arms[0])
    findings = {arm.label: found.finding(arm.label) for arm in arms if arm.label != found.base}
    if fits:
        findings[f"h2o over {SINKS}"] = found.finding("h2o", SINKS)
    else:
        findings = {f"{label} over {SINKS}": item for label, item in findings.items()}
    difference = findings[f"h2o over {SINKS}"]
    return ExperimentResult.of(
        study,
        "streaming",
        "On a long text at equal budget, is H2O's perplexity below that of sinks and a window?",
        f"H2O over sinks + recent at {budget}, T = {study.tokens}, {positions} positions: "
        f"{difference['value']:+.4f} nats per token "
        f"[{difference['low']:.4f}, {difference['high']:.4f}]",
        findings,
        found.table(),
        extra={"running": _running(found, study.tokens)},
        budget=budget,
        positions=positions,
        base=found.base,
    )


def _running(found, tokens):
    """Perplexity by stretch: arm, first and last + 1 token of the stretch, perplexity."""
    lines = []
    edges = np.linspace(0, tokens, min(STRETCHES, tokens // 2) + 1).astype(int)
    for label in found.labels:
        losses = found.losses(label).reshape(-1, tokens)
        for first, last in zip(edges[:-1], edges[1:], strict=True):
            perplexity = float(np.exp(np.nanmean(losses[:, first:last])))
            lines.append({"arm": label, "first": first, "last": last, "perplexity": perplexity})
    return pd.DataFrame(lines)
