"""Part E, claims about scores, on recorded rows: what a cache retains of the full attention.

Open-loop: the share of the recorded attention retained, and the error of each attention output.
"""

import functools

from h2o_theory.engine import replay
from paper_checks.finding import NOT_REPRODUCED, REPRODUCED, CheckFinding
from paper_checks.recorded import bootstrap, committed_trace, described, interval_text

__all__ = ["obs_spatten", "open_loop"]

BUDGET = "20%"
POLICIES = "h2o,h2o:score=mean,heavy,spatten,oracle_static"


@functools.cache
def _replayed():
    """Retained mass and output error by head: {label: {measure: [heads]}} at the budget."""
    table = replay(committed_trace(), POLICIES, BUDGET)
    labels = table.policy.where(~table.parameters.str.contains("score=mean"), "h2o mean")
    table = table.assign(label=labels).sort_values(["layer", "kv_head"])
    return {
        label: {"mass": rows.retained_mass.to_numpy(), "error": rows.output_error.to_numpy()}
        for label, rows in table.groupby("label")
    }


def _difference(first, second, measure):
    return _replayed()[first][measure] - _replayed()[second][measure]


def open_loop(first, second):
    """How two policies differ on the recorded rows, per head, as text."""
    gap, error = (_difference(first, second, measure) for measure in ("mass", "error"))
    return (
        f"retained attention {interval_text(gap, 4)}, output error {interval_text(error, 4)}; "
        f"{len(gap)} kv_heads at {BUDGET}, {described()}"
    )


def obs_spatten() -> CheckFinding:
    """One set per head by accumulated attention, against one set for all heads and layers."""
    gap = _difference("heavy", "spatten", "mass")
    low, _ = bootstrap(gap)
    return CheckFinding(
        REPRODUCED if low > 0 else NOT_REPRODUCED,
        f"At {BUDGET}, accumulated attention without a recent window on both sides: a set per head "
        f"retains {interval_text(_replayed()['heavy']['mass'])} of the attention, one set by "
        f"attention summed over heads and layers {interval_text(_replayed()['spatten']['mass'])}; "
        f"the difference per head is {interval_text(gap, 4)}. Output quality was not measured.",
        f"{len(gap)} kv_heads; {described()}",
        {"heads on which a set per head retains more": f"{int((gap > 0).sum())} of {len(gap)}"},
    )
