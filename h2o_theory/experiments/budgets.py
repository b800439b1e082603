"""Loss against budget for the policies of the paper, and the baselines that explain them."""

from h2o_theory.experiments.result import ExperimentResult
from h2o_theory.experiments.study import policy_arm

__all__ = ["LADDER_BUDGETS", "LADDER_POLICIES", "budget_ladder"]

LADDER_POLICIES = (
    "h2o",
    "recent",
    "sink",
    "heavy",
    "lru",
    "lfu",
    "greedy:rows=renormalised",
    "tova",
    "random",
    "random:n_sink=4",
)
LADDER_BUDGETS = ("4%", "10%", "20%", "50%")


def budget_ladder(study, *, policies=LADDER_POLICIES, budgets=LADDER_BUDGETS):
    """Perplexity of each policy at each budget, streaming from the first token.

    The finding ``h2o`` at 20 % over the full cache says whether H2O matches it; ``recent`` what
    recency alone does; ``h2o over sink`` what the heavy hitters add to sinks and a window.

    Parameters
    ----------
    study : Study
    policies, budgets : sequence of str

    Returns
    -------
    ExperimentResult
    """
    named = {
        (policy, budget): policy_arm(policy, budget, study.tokens, label=f"{policy} at {budget}")
        for budget in budgets
        for policy in policies
    }
    found = study.compare(named.values())
    table = found.table()
    arms = [found.arms[label] for label in table["arm"]]
    table.insert(1, "policy", [arm.policy for arm in arms])
    table.insert(2, "policy_name", [arm.policy_name for arm in arms])
    table.insert(3, "budget", ["100%", *(budget for _, budget in named)])
    findings = {
        f"{policy} at {budget} over the full cache": found.finding(f"{policy} at {budget}")
        for policy, budget in named
    }
    for budget in budgets:
        for other in ("sink", "recent", "random:n_sink=4"):
            if {("h2o", budget), (other, budget)} <= named.keys():
                findings[f"h2o over {other} at {budget}"] = found.finding(
                    f"h2o at {budget}", f"{other} at {budget}"
                )
    return ExperimentResult.of(
        study,
        "ladder",
        "What does each policy cost the running model at each budget?",
        _answer(findings),
        findings,
        table,
    )


def _answer(findings):
    parts = []
    for policy in ("h2o", "recent"):
        finding = findings.get(f"{policy} at 20% over the full cache")
        if finding:
            matches = "matches" if finding["low"] <= 0 else "does not match"
            parts.append(
                f"{policy} at 20 % {matches} the full cache on this text: {finding['value']:+.3f} "
                f"nats per token [{finding['low']:.3f}, {finding['high']:.3f}]"
            )
    return "; ".join(parts) or "see the table"
