"""How far a replay of recorded rows can be trusted: its measures against the running model."""

import tempfile

import numpy as np
import pandas as pd

from h2o_theory.budgets import parse_budget
from h2o_theory.engine import replay
from h2o_theory.experiments.global_statistics import recorded, schedules_of
from h2o_theory.experiments.result import ExperimentResult
from h2o_theory.experiments.study import FULL, Arm, policy_arm
from h2o_theory.live.evaluate import evaluate
from h2o_theory.policies import make_policy
from h2o_theory.statistics import spearman

__all__ = ["METRICS", "fidelity", "overlap"]

METRICS = ("lost_mass", "ratio_gap", "output_error", "kl")
"""Of the replay, each 0 for the full cache or the optimum and larger for worse: 1 - retained
mass, 1 - approximation ratio, relative output error, KL of the rows."""

POLICIES = ("h2o", "recent", "sink", "heavy", "tova", "random", "random:n_sink=4")
BUDGETS = ("4%", "10%", "20%", "50%")
REPLICATES = 1000


def fidelity(
    study,
    *,
    policies=POLICIES,
    budgets=BUDGETS,
    layer_policies=("h2o", "recent", "sink"),
    layer_budget="10%",
    layers=None,
    followed=("h2o", "tova"),
    followed_budget="20%",
):
    """Rank correlation of the replay's measures with the loss increase in the running model.

    Three parts. *All layers*: each policy at each budget evicts everywhere; the replay's measures
    are means over all kv_heads. *One layer*: a policy evicts in a single layer, and the measures
    are those of its heads. *Divergence*: retained sets chosen by replay against those chosen in
    the model, layer by layer.

    Parameters
    ----------
    study : Study
    policies, budgets : sequence of str
        Of the first part.
    layer_policies : sequence of str
    layer_budget : str
    layers : sequence of int, optional
        Of the second part, which uses the first window; seven of them by default, evenly spread.
    followed : sequence of str
        Policies of the third part, at ``followed_budget``, on the first window.
    followed_budget : str

    Returns
    -------
    ExperimentResult
        The table holds the points; ``extra["overlap"]`` the Jaccard index by policy and layer.
        Findings: Spearman's correlation of each measure for each part, with a bootstrap interval
        over points (they share text and model, so it is a description of these points), and the
        share of resamples in which each measure correlates best.
    """
    count = study.model.model.config.num_hidden_layers
    if layers is None:
        layers = sorted({round(i * (count - 1) / 6) for i in range(7)})
    everywhere = _everywhere(study, policies, budgets)
    single = _single(study, layer_policies, layer_budget, layers)
    points = pd.concat([everywhere, single], ignore_index=True)
    followed = _followed(study, followed, followed_budget)
    findings = {}
    for part, rows in points.groupby("part", sort=False):
        findings |= _correlations(part, rows)
    for policy, rows in followed.groupby("policy", sort=False):
        first, last = rows.iloc[0], rows.iloc[-1]
        for row in (first, last):
            findings[f"overlap of {policy}, layer {row.layer}"] = {
                "value": row.jaccard,
                "low": row.least,
                "high": row.most,
                "n": int(row.kv_heads),
                "unit": "Jaccard index; the interval is the range over kv_heads",
            }
    return ExperimentResult.of(
        study,
        "fidelity",
        "Which measure of the replay predicts the loss in the running model, and how well?",
        _answer(findings, points),
        findings,
        points,
        extra={"overlap": followed},
        followed_budget=followed_budget,
        layer_budget=layer_budget,
    )


def overlap(first, second, budget):
    """Jaccard index of the visible sets of two schedules [T], mean over steps with a full cache.

    1.0 if no step has one.
    """
    tokens = len(first)
    steps = np.arange(min(budget, tokens - 1), tokens)[:, None]
    arrived = np.arange(tokens) <= steps
    one, two = (arrived & (np.asarray(s) >= steps) for s in (first, second))
    if budget >= tokens:
        return 1.0
    return float(((one & two).sum(axis=1) / (one | two).sum(axis=1)).mean())


def _replayed(study, window, policies, budgets):
    """The replay's measures by policy as given, budget and layer: a table."""

    def compute():
        with tempfile.TemporaryDirectory() as folder:
            trace = recorded(study, window, folder)
            table = replay(trace, list(policies), list(budgets))
        asked = {
            (policy.name, policy.describe(k)): name
            for name, policy in zip(policies, map(make_policy, policies), strict=True)
            for k in table["budget_tokens"].unique().tolist()
        }
        named = zip(table["policy"], table["parameters"], strict=True)
        table["asked"] = [asked[pair] for pair in named]
        table["lost_mass"] = table["full_mass"] - table["retained_mass"]
        table["ratio_gap"] = 1 - table["approximation_ratio"]
        means = table.groupby(["asked", "budget", "layer"], sort=False)[list(METRICS)].mean()
        means = means.reset_index()
        return {"rows": means[["asked", "budget"]].to_dict("list")}, {
            name: means[name].to_numpy() for name in ("layer", *METRICS)
        }

    what = {"policies": list(policies), "budgets": list(budgets)}
    record, arrays = study.kept(compute, kind="replay", ids=study.windows[window], **what)
    return pd.DataFrame(record["rows"] | arrays)


def _everywhere(study, policies, budgets):
    points = []
    for window in range(len(study.windows)):
        full = study.cell(window, FULL)[1]["losses"]
        table = _replayed(study, window, policies, budgets)
        means = table.groupby(["asked", "budget"], sort=False)[list(METRICS)].mean()
        for (policy, budget), measures in means.iterrows():
            losses = study.cell(window, policy_arm(policy, budget, study.tokens))[1]["losses"]
            points.append(
                {
                    "part": "all layers",
                    "policy": policy,
                    "budget": budget,
                    "window": window,
                    "layer": -1,
                    **measures,
                    "loss_increase": float(np.nanmean(losses - full)),
                }
            )
            _tell(study, len(points), len(means) * len(study.windows), "cells, all layers")
    return pd.DataFrame(points)


def _single(study, policies, budget, layers):
    table = _replayed(study, 0, policies, [budget])
    full, points = study.cell(0, FULL)[1]["losses"], []
    for policy in policies:
        for layer in layers:
            chosen = (table["asked"] == policy) & (table["layer"] == layer)
            losses = study.cell(0, _one_layer(study, policy, budget, layer))[1]["losses"]
            points.append(
                {
                    "part": "one layer",
                    "policy": policy,
                    "budget": budget,
                    "window": 0,
                    "layer": layer,
                    **table.loc[chosen, list(METRICS)].iloc[0],
                    "loss_increase": float(np.nanmean(losses - full)),
                }
            )
            _tell(study, len(points), len(policies) * len(layers), "cells, one layer")
    return pd.DataFrame(points)


def _one_layer(study, name, budget, layer):
    """The arm in which a policy evicts in one layer and the others keep everything."""
    k = parse_budget(budget).resolve(study.tokens)

    def run(study, window, reference):
        layers = range(study.model.model.config.num_hidden_layers)
        budgets = dict.fromkeys(layers, study.tokens) | {layer: k}
        return evaluate(study.model, study.windows[window], name, budgets, reference=reference)

    what = {"kind": "one layer", "policy": name, "budget": k, "layer": layer}
    return Arm(f"{name} in layer {layer}", what, run)


def _followed(study, policies, budget):
    """Overlap of retained sets, replay against model, by policy and layer."""
    k, lines = parse_budget(budget).resolve(study.tokens), []
    for name in policies:

        def compute(name=name):
            closed = evaluate(study.model, study.windows[0], name, k).evicted_at
            with tempfile.TemporaryDirectory() as folder:
                opened = schedules_of(recorded(study, 0, folder), make_policy(name), k)
            return {}, {"open": opened.astype(np.int32), "closed": closed.astype(np.int32)}

        found = study.kept(compute, kind="both", ids=study.windows[0], policy=name, budget=k)[1]
        for layer, (ours, theirs) in enumerate(zip(found["open"], found["closed"], strict=True)):
            heads = [overlap(a, b, k) for a, b in zip(ours, theirs, strict=True)]
            lines.append(
                {
                    "policy": name,
                    "layer": layer,
                    "jaccard": float(np.mean(heads)),
                    "least": min(heads),
                    "most": max(heads),
                    "kv_heads": len(heads),
                }
            )
        _tell(study, len(lines), len(policies) * len(found["open"]), "retained sets")
    return pd.DataFrame(lines)


def _correlations(part, rows):
    """Spearman of each measure with the loss, and how often each is the best in a resample."""
    target, findings = rows["loss_increase"].to_numpy(), {}
    for name in METRICS:
        value, low, high = spearman(rows[name].to_numpy(), target, replicates=REPLICATES)
        findings[f"{part}: {name}"] = {
            "value": value,
            "low": low,
            "high": high,
            "n": len(rows),
            "unit": "Spearman's correlation with the loss increase",
        }
    wins = _wins(rows[list(METRICS)].to_numpy(), target)
    for name, share in zip(METRICS, wins, strict=True):
        findings[f"{part}: {name} is the best"] = {
            "value": share,
            "low": None,
            "high": None,
            "n": len(rows),
            "unit": "share of resamples",
        }
    return findings


def _wins(measures, target, seed=0):
    rng, wins = np.random.default_rng(seed), np.zeros(measures.shape[1])
    for _ in range(REPLICATES):
        drawn = rng.integers(len(target), size=len(target))
        ranks = pd.DataFrame(measures[drawn]).rank()
        wins[np.argmax(ranks.corrwith(pd.Series(target[drawn]).rank()).to_numpy())] += 1
    return wins / REPLICATES


def _answer(findings, points):
    parts = []
    for part in points["part"].unique():
        best = max(METRICS, key=lambda name: findings[f"{part}: {name}"]["value"])
        found = findings[f"{part}: {best}"]
        parts.append(
            f"{part}: {best} correlates best, {found['value']:.3f} "
            f"[{found['low']:.3f}, {found['high']:.3f}] over {found['n']} points"
        )
    return "; ".join(parts)


def _tell(study, done, total, label):
    if study.progress:
        study.progress(done, total, label)
