"""Sparse attention patterns inside the model, with and without heavy hitters."""

from dataclasses import fields, replace

from h2o_theory.budgets import parse_budget
from h2o_theory.experiments.result import ExperimentResult
from h2o_theory.experiments.study import Arm, policy_arm
from h2o_theory.live.evaluate import evaluate_following
from h2o_theory.live.masking import MaskChooser
from h2o_theory.masks import parse_masks

__all__ = ["sparse_masks"]


def sparse_masks(study, *, budget="20%", masks=("topk", "strided", "fixed"), heavy=0.5):
    """Each pattern bare, and with a share of its budget given to heavy hitters; H2O beside them.

    A mask keeps all keys and saves no memory, so its numbers are not those of a cache.

    Parameters
    ----------
    study : Study
    budget : str
        Keys a query sees.
    masks : str or list
        As :func:`~h2o_theory.masks.replay_masks` takes them. One that has its heavy hitters
        already, by its rule or by ``heavy=`` in its name, runs as it is.
    heavy : float

    Returns
    -------
    ExperimentResult

    Raises
    ------
    UnknownName, BadArgument, BadBudget
    """
    k = parse_budget(budget).resolve(study.tokens)
    masks = list(dict.fromkeys(parse_masks(masks)))
    bare = [mask for mask in masks if _takes_heavy(mask)]
    arms = [policy_arm("h2o", budget, study.tokens, label="h2o (a cache)")]
    for mask in masks:
        arms.append(_masked(_text(mask), mask, k))
        if mask in bare:
            mixed = replace(mask, heavy=heavy)
            arms.append(_masked(f"{_text(mask)} with heavy hitters", mixed, k))
    found = study.compare(arms)
    findings = {arm.label: found.finding(arm.label) for arm in arms}
    said = []
    for mask in masks:
        name = _text(mask)
        if mask in bare:
            gain = found.finding(f"{name} with heavy hitters", name)
            findings[f"{name}: heavy hitters over none"] = gain
            said.append(f"{name}: {gain['value']:+.3f} nats per token with heavy hitters")
        else:
            loss = findings[name]["value"]
            said.append(f"{name}: {loss:+.3f} nats per token over the full cache")
    return ExperimentResult.of(
        study,
        "masks",
        "Do heavy hitters improve sparse attention patterns at the same budget?",
        "; ".join(said),
        findings,
        found.table(),
        budget=budget,
        heavy=heavy,
    )


def _takes_heavy(mask):
    """Whether heavy hitters can join the pattern, and none do yet."""
    return "heavy" in {item.name for item in fields(mask)} and mask.heavy == 0


def _text(mask):
    """Name and changed parameters, as a command line would have them."""
    changed = [
        f"{item.name}={getattr(mask, item.name)}"
        for item in fields(mask)
        if getattr(mask, item.name) != item.default
    ]
    return ":".join(filter(None, [mask.name, ",".join(changed)]))


def _masked(label, mask, budget):
    def run(study, window, reference):
        def choosers(layer, kv_heads):
            return [((head,), MaskChooser(mask, budget, study.tokens)) for head in range(kv_heads)]

        ids = study.windows[window]
        return evaluate_following(study.model, ids, choosers, reference=reference)

    return Arm(label, {"kind": "mask", "mask": _text(mask), "budget": budget}, run)
