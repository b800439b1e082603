"""Part E, claims about the quality of the output: in the running model, at reduced scale.

Losses are nats per token over the full cache on the same tokens. What counts as close or as a
collapse is fixed here, before anything is run.
"""

import functools

from h2o_theory.experiments.global_statistics import local_against_global
from h2o_theory.experiments.quantised import quantised_cache
from h2o_theory.experiments.removal import mask_heavy_hitters
from h2o_theory.experiments.sparse import sparse_masks
from h2o_theory.experiments.streaming import long_text
from paper_checks.e_cache import open_loop
from paper_checks.finding import NOT_REPRODUCED, OUT_OF_REACH, REPRODUCED, CheckFinding
from paper_checks.running_model import (
    ALL_WINDOWS,
    BUDGET,
    LONG,
    LONGER,
    MASK_WINDOWS,
    TOKENS,
    arms_at_budget,
    described,
    long_study,
    longer_study,
    said,
    study,
)

__all__ = [
    "obs_ablation",
    "obs_average",
    "obs_diversity",
    "obs_h2o_20",
    "obs_local_global",
    "obs_mlp",
    "obs_quant",
    "obs_removal",
    "obs_shots",
    "obs_sparse_transformer",
    "obs_streaming",
    "obs_topk",
]

CLOSE = 0.1
"""Nats per token, about 10 % of perplexity: less is close to the full cache."""
COLLAPSE = 0.405
"""Nats per token, one and a half times the perplexity: more is a collapse."""
NO_LOSS = 0.02
"""Nats per token, 2 % of perplexity: less is no further loss."""
STREAM, LONGER_STREAM = "128", "256"
SHARE = 0.05


def _verdict(true):
    return REPRODUCED if true else NOT_REPRODUCED


def obs_h2o_20() -> CheckFinding:
    """H2O and recency alone at 20 %, against the full cache."""
    found = arms_at_budget()
    h2o, recent = found.finding("h2o"), found.finding("recent")
    return CheckFinding(
        _verdict(h2o["high"] < CLOSE and recent["low"] > COLLAPSE),
        f"At {BUDGET} H2O costs {said(h2o)} nats per token over the full cache (close: below "
        f"{CLOSE}), recent tokens alone {said(recent)} (collapse: above {COLLAPSE}).",
        described(ALL_WINDOWS),
        {"perplexity": _perplexities(("full cache", "h2o", "recent"))},
    )


def obs_ablation() -> CheckFinding:
    """Heavy hitters alone, recent tokens alone, and both."""
    found = arms_at_budget()
    h2o, heavy, recent = (found.finding(name) for name in ("h2o", "heavy", "recent"))
    order = found.finding("heavy", "recent")
    parts = {
        "both together stay close": h2o["high"] < CLOSE,
        "each alone loses": min(heavy["low"], recent["low"]) > CLOSE,
        "heavy hitters alone beat recent tokens alone": order["high"] < 0,
    }
    return CheckFinding(
        _verdict(all(parts.values())),
        f"At {BUDGET} over the full cache: both {said(h2o)}, heavy hitters alone {said(heavy)}, "
        f"recent tokens alone {said(recent)}; heavy over recent {said(order)}. "
        + "; ".join(f"{name}: {'yes' if true else 'no'}" for name, true in parts.items())
        + ".",
        described(ALL_WINDOWS),
        {"perplexity": _perplexities(("full cache", "h2o", "heavy", "recent"))},
    )


def _perplexities(labels):
    table = arms_at_budget().table().set_index("arm").perplexity
    return {label: round(float(table[label]), 2) for label in labels}


def obs_average() -> CheckFinding:
    """Scores averaged over the rows a key has been seen by, against the plain sum."""
    order = arms_at_budget().finding("h2o:score=mean", "h2o")
    return CheckFinding(
        _verdict(order["low"] > 0),
        f"At {BUDGET} averaging costs {said(order, 4)} nats per token more than summing: "
        f"{'worse, as stated' if order['low'] > 0 else 'not worse'} on this text.",
        described(ALL_WINDOWS),
        {"open-loop, averaging minus summing": open_loop("h2o mean", "h2o")},
    )


def obs_local_global() -> CheckFinding:
    """H2O's running scores, against a schedule by the scores of the whole text."""
    found = local_against_global(study(), budget=BUDGET).findings
    order = found["local over global"]
    return CheckFinding(
        _verdict(order["high"] < CLOSE),
        f"At {BUDGET} local scores cost {said(order)} nats per token more than scores of the whole "
        f"text, taken from a recording of the full cache (as well: below {CLOSE}).",
        described(),
        {name: said(found[name]) for name in ("local (h2o)", "global")}
        | {"open-loop, local minus global": open_loop("h2o", "oracle_static")},
    )


def obs_removal() -> CheckFinding:
    """Masking heavy hitters, against as many random and recent tokens."""
    found = mask_heavy_hitters(study(), shares=(SHARE,)).findings
    m = int(SHARE * study().tokens)
    heavy = found[f"{m} heavy hitters"]
    order = found[f"{m} heavy hitters over {m} random neighbours"]
    but_sinks, recent = found[f"{m} heavy hitters but sinks"], found[f"{m} most recent"]
    return CheckFinding(
        _verdict(heavy["low"] > COLLAPSE and order["low"] > 0),
        f"Hiding the {m} keys of each head with most accumulated attention costs {said(heavy)} "
        f"nats per token (ruin: above {COLLAPSE}), {said(order)} more than as many random keys "
        f"nearby. Without the first four positions among them it costs {said(but_sinks)}, and as "
        f"many most recent keys cost {said(recent)}.",
        described(),
        {name: said(value) for name, value in found.items()},
    )


def obs_streaming() -> CheckFinding:
    """H2O against sinks and a window on two lengths; the longer one decides."""
    short = long_text(long_study(), budget=STREAM).findings
    other = longer_study()
    order = long_text(other, budget=LONGER_STREAM).findings
    before, gap = (found["h2o over sinks + recent"] for found in (short, order))
    return CheckFinding(
        _verdict(gap["high"] < 0),
        f"H2O's loss over that of four sinks and a window: {said(before)} nats per token at "
        f"{STREAM} entries and T = {LONG}, but {said(gap)} at {LONGER_STREAM} entries and "
        f"T = {LONGER}. The claim is about millions of tokens; positions are those of the text.",
        f"{described(1, LONG)}; the same on {other.text}, T = {LONGER}",
        {name: said(value) for name, value in order.items()},
    )


def obs_quant() -> CheckFinding:
    """4-bit keys and values, H2O, and both."""
    found = quantised_cache(study(), budget=BUDGET).findings
    extra = found["interaction"]
    return CheckFinding(
        _verdict(extra["high"] < NO_LOSS),
        f"What H2O at {BUDGET} and 4 bits cost together beyond the sum of the two: "
        f"{said(extra, 4)} nats per token (no loss: below {NO_LOSS}).",
        described(),
        {name: said(value) for name, value in found.items()},
    )


@functools.cache
def _masks():
    return sparse_masks(study(TOKENS, MASK_WINDOWS), budget=BUDGET).findings


def obs_sparse_transformer() -> CheckFinding:
    """Strided and fixed patterns, bare and with half of the keys given to heavy hitters."""
    found = _masks()
    failed = all(found[name]["low"] > COLLAPSE for name in ("strided", "fixed"))
    mended = all(
        found[f"{name} with heavy hitters"]["high"] < CLOSE for name in ("strided", "fixed")
    )
    return CheckFinding(
        _verdict(failed and mended),
        f"At {BUDGET} of the keys: "
        + "; ".join(
            f"{name} {said(found[name])}, with heavy hitters "
            f"{said(found[f'{name} with heavy hitters'])}"
            for name in ("strided", "fixed")
        )
        + f" nats per token over the full cache. They fail (above {COLLAPSE}): "
        f"{'yes' if failed else 'no'}; they recover (below {CLOSE}): {'yes' if mended else 'no'}.",
        described(MASK_WINDOWS),
    )


def obs_topk() -> CheckFinding:
    """The top k keys of each row, and half of them given to heavy hitters."""
    found = _masks()
    gain = found["topk: heavy hitters over none"]
    return CheckFinding(
        _verdict(gain["high"] < 0),
        f"At {BUDGET} of the keys the top k of each row cost {said(found['topk'], 4)} nats per "
        f"token over the full cache; with half of them heavy hitters {said(gain, 4)} more. "
        "(A row's own top k are the keys it attends to most, so there is little left to gain.)",
        described(MASK_WINDOWS),
    )


def obs_shots() -> CheckFinding:
    """Needs tasks and a model that can do them."""
    return _not_run(
        "About accuracy on few-shot tasks: the data sets and models of that size are not here, "
        "and a model of 135 million parameters is at chance on them."
    )


def obs_mlp() -> CheckFinding:
    """Needs a trained model with ReLU."""
    return _not_run(
        "The model at hand (SmolLM2) has a SiLU gate, whose neurons are never exactly inactive; "
        "the claim is about ReLU, and random weights would say nothing about trained ones."
    )


def obs_diversity() -> CheckFinding:
    """Needs many sampled continuations."""
    return _not_run(
        "Self-BLEU differs slightly, says the claim: telling a slight difference from chance needs "
        "far more sampled text than a check can draw."
    )


def _not_run(reason):
    return CheckFinding(OUT_OF_REACH, reason, "nothing was run")
