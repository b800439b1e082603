"""Part E, claims about scores, on recorded rows: what a cache retains of the full attention.

The paper's measure is the quality of the output. What is measured here is open-loop: the share of
the recorded attention retained, and the error of each attention output.
"""

import functools

from h2o_theory.engine import replay
from h2o_theory.paper_checks.finding import NOT_REPRODUCED, REPRODUCED, Finding
from h2o_theory.paper_checks.recorded import bootstrap, committed_trace, described, interval_text

__all__ = ["obs_average", "obs_local_global", "obs_spatten", "replayed"]

BUDGET = "20%"
CLOSE = 0.02
"""Retained mass within two points counts as "as well"."""
POLICIES = "h2o,h2o:score=mean,heavy,spatten,oracle_static"


@functools.cache
def replayed():
    """Retained mass and output error by head: {label: {measure: [heads]}} at the budget."""
    table = replay(committed_trace(), POLICIES, BUDGET)
    labels = table.policy.where(~table.parameters.str.contains("score=mean"), "h2o mean")
    table = table.assign(label=labels).sort_values(["layer", "kv_head"])
    return {
        label: {
            "mass": rows.retained_mass.to_numpy(),
            "error": rows.output_error.to_numpy(),
        }
        for label, rows in table.groupby("label")
    }


def _difference(first, second, measure):
    return replayed()[first][measure] - replayed()[second][measure]


def obs_local_global():
    """H2O's running scores against scores that include the future, same parts."""
    gap = _difference("h2o", "oracle_static", "mass")
    error = _difference("h2o", "oracle_static", "error")
    low, _ = bootstrap(gap)
    return Finding(
        REPRODUCED if low > -CLOSE else NOT_REPRODUCED,
        f"At {BUDGET} H2O with local scores retains {interval_text(replayed()['h2o']['mass'])} of "
        "the attention, with the scores of the whole text "
        f"{interval_text(replayed()['oracle_static']['mass'])}; the difference per head is "
        f"{interval_text(gap, 4)}, against the {CLOSE} that counts as close here. Output quality "
        "was not measured: a running model does not know the future.",
        f"{len(gap)} kv_heads, half heavy and half recent; {described()}",
        {"difference of the output error": interval_text(error, 4)},
    )


def obs_average():
    """Scores averaged over the rows a key has been seen by, against the plain sum."""
    gap = _difference("h2o mean", "h2o", "mass")
    error = _difference("h2o mean", "h2o", "error")
    low, high = bootstrap(gap)
    return Finding(
        REPRODUCED if high < 0 else NOT_REPRODUCED,
        f"On recorded rows averaging does better, not worse: at {BUDGET} it retains "
        f"{interval_text(gap, 4)} more of the attention than summing, per head. The claim is about "
        f"output quality; the error of the attention output differs by {interval_text(error, 4)}.",
        f"{len(gap)} kv_heads, half heavy and half recent; {described()}",
        {"heads on which averaging retains more": f"{int((gap > 0).sum())} of {len(gap)}"},
    )




def obs_spatten():
    """One set per head by accumulated attention, against one set for all heads and layers."""
    gap = _difference("heavy", "spatten", "mass")
    low, _ = bootstrap(gap)
    return Finding(
        REPRODUCED if low > 0 else NOT_REPRODUCED,
        f"At {BUDGET}, accumulated attention without a recent window on both sides: a set per head "
        f"retains {interval_text(replayed()['heavy']['mass'])} of the attention, one set by "
        f"attention summed over heads and layers {interval_text(replayed()['spatten']['mass'])}; "
        f"the difference per head is {interval_text(gap, 4)}. Output quality was not measured.",
        f"{len(gap)} kv_heads; {described()}",
        {"heads on which a set per head retains more": f"{int((gap > 0).sum())} of {len(gap)}"},
    )
