"""Keys and values in 4 bits, with and without H2O."""

import numpy as np

from h2o_theory.budgets import parse_budget
from h2o_theory.experiments.result import ExperimentResult
from h2o_theory.experiments.study import Arm, policy_arm
from h2o_theory.live.evaluate import evaluate
from h2o_theory.live.quantise import Quantiser
from h2o_theory.live.summary import mean_interval

__all__ = ["quantised_cache"]


def quantised_cache(study, *, budget="20%", bits=4, group=64):
    """The cost of rounding, of H2O, and of both; and whether they add up.

    ``interaction`` is what both cost beyond the sum of the two: at most 0 if they combine without
    further loss.

    Parameters
    ----------
    study : Study
    budget : str
    bits, group : int
        See :class:`~h2o_theory.live.quantise.Quantiser`.

    Returns
    -------
    ExperimentResult
    """
    rounding = Quantiser(bits, group)
    plain = policy_arm("h2o", budget, study.tokens, label="h2o")
    arms = [
        plain,
        _rounded(f"{bits} bits", "full", study.tokens, rounding),
        _rounded(
            f"h2o and {bits} bits", "h2o", parse_budget(budget).resolve(study.tokens), rounding
        ),
    ]
    found = study.compare(arms)
    both, alone = f"h2o and {bits} bits", f"{bits} bits"
    findings = {arm.label: found.finding(arm.label) for arm in arms}
    findings[f"{both} over h2o"] = found.finding(both, "h2o")
    extra = found.losses(both) - found.losses("h2o") - found.losses(alone)
    extra += found.losses("full cache")
    extra = extra[np.isfinite(extra)]
    value, low, high = mean_interval(extra)
    findings["interaction"] = {
        "value": value,
        "low": low,
        "high": high,
        "n": len(extra),
        "unit": "nats per token",
    }
    table = found.table()
    config = study.model.model.config
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    size = study.model.model.dtype.itemsize
    share = rounding.entry_bytes(width, width) / (2 * width * size)
    is_rounded = table["arm"].isin([both, alone])
    table["kv_bytes"] = (table["kv_bytes"] * np.where(is_rounded, share, 1.0)).astype(int)
    return ExperimentResult.of(
        study,
        "quantised",
        f"Do {bits}-bit keys and values combine with H2O at {budget} without further loss?",
        f"{bits} bits cost {findings[alone]['value']:+.3f}, H2O {findings['h2o']['value']:+.3f}, "
        f"both {findings[both]['value']:+.3f} nats per token; beyond the sum: {value:+.3f} "
        f"[{low:.3f}, {high:.3f}]",
        findings,
        table,
        budget=budget,
        bits=bits,
        group=group,
    )


def _rounded(label, policy, budget, rounding):
    def run(study, window, reference):
        return evaluate(
            study.model,
            study.windows[window],
            policy,
            budget,
            transform=rounding,
            reference=reference,
        )

    what = {"bits": rounding.bits, "group": rounding.group, "policy": policy, "budget": budget}
    return Arm(label, {"kind": "quantised", **what}, run)
