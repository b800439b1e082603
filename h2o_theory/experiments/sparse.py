"""Sparse attention patterns inside the model, with and without heavy hitters."""

from h2o_theory.experiments.result import ExperimentResult
from h2o_theory.experiments.study import Arm, policy_arm
from h2o_theory.live.evaluate import evaluate_following
from h2o_theory.live.masking import MaskChooser
from h2o_theory.masks import make_mask
from h2o_theory.policies import parse_budget

__all__ = ["sparse_masks"]


def sparse_masks(study, *, budget="20%", patterns=("topk", "strided", "fixed"), heavy=0.5):
    """Each pattern bare, and with a share of its budget given to heavy hitters; H2O beside them.

    A mask keeps all keys and saves no memory, so its numbers are not those of a cache.

    Parameters
    ----------
    study : Study
    budget : str
        Keys a query sees.
    patterns : sequence of str
        Names of masks that look at no queries or keys.
    heavy : float

    Returns
    -------
    ExperimentResult
    """
    k = parse_budget(budget).resolve(study.tokens)
    arms = [policy_arm("h2o", budget, study.tokens, label="h2o (a cache)")]
    for name in patterns:
        arms.append(_masked(name, name, k))
        arms.append(_masked(f"{name} with heavy hitters", f"{name}:heavy={heavy}", k))
    found = study.compare(arms)
    findings = {arm.label: found.finding(arm.label) for arm in arms}
    for name in patterns:
        findings[f"{name}: heavy hitters over none"] = found.finding(
            f"{name} with heavy hitters", name
        )
    return ExperimentResult.of(
        study,
        "masks",
        "Do heavy hitters improve sparse attention patterns at the same budget?",
        "; ".join(
            f"{name}: {findings[f'{name}: heavy hitters over none']['value']:+.3f} nats per token "
            "with heavy hitters"
            for name in patterns
        ),
        findings,
        found.table(),
        budget=budget,
        heavy=heavy,
    )


def _masked(label, text, budget):
    mask = make_mask(text)

    def run(study, window, reference):
        def choosers(layer, kv_heads):
            return [((head,), MaskChooser(mask, budget, study.tokens)) for head in range(kv_heads)]

        ids = study.windows[window]
        return evaluate_following(study.model, ids, choosers, reference=reference)

    return Arm(label, {"kind": "mask", "mask": text, "budget": budget}, run)
