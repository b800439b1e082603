"""Scores from the rows so far against scores from the whole text."""

import tempfile
from pathlib import Path

import numpy as np

from h2o_theory.budgets import parse_budget
from h2o_theory.engine import schedules
from h2o_theory.experiments.result import ExperimentResult
from h2o_theory.experiments.study import Arm, policy_arm
from h2o_theory.live.chooser import ScheduleChooser
from h2o_theory.live.evaluate import evaluate_following
from h2o_theory.live.stream import as_token_ids
from h2o_theory.policies import make_policy
from h2o_theory.recorder import record
from h2o_theory.trace import open_trace

__all__ = ["local_against_global", "recorded", "schedules_of"]


def local_against_global(study, *, budget="20%"):
    """H2O with local statistics against the same budget filled by global ones, in the model.

    Global: each token's accumulated attention over the whole text, taken from a recorded trace of
    the full cache, decides from the start (``oracle_static`` with H2O's window). Beside them runs
    the schedule with the largest retained mass of all, ``optimum``, also chosen on the trace: it
    shows what knowing the full-cache rows is worth once eviction changes them.

    Parameters
    ----------
    study : Study
    budget : str

    Returns
    -------
    ExperimentResult
    """
    arms = {
        "local (h2o)": policy_arm("h2o", budget, study.tokens, label="local (h2o)"),
        "local (heavy)": policy_arm("heavy", budget, study.tokens, label="local (heavy)"),
        "global": _scheduled("global", "oracle_static", budget),
        "optimum's schedule": _scheduled("optimum's schedule", "optimum", budget),
    }
    found = study.compare(arms.values())
    findings = {label: found.finding(label) for label in arms}
    findings["local over global"] = found.finding("local (h2o)", "global")
    findings["local over optimum's schedule"] = found.finding("local (h2o)", "optimum's schedule")
    difference = findings["local over global"]
    return ExperimentResult.of(
        study,
        "statistics",
        "Are scores from the rows so far as good as scores from the whole text?",
        f"at {budget}, local statistics cost {difference['value']:+.3f} nats per token more than "
        f"global ones [{difference['low']:.3f}, {difference['high']:.3f}]",
        findings,
        found.table(),
        budget=budget,
    )


def recorded(study, window, folder):
    """A trace of the full cache on a window, all layers, under ``folder``."""
    import torch

    path = Path(folder) / f"window-{window}"
    if not path.exists():
        ids = torch.from_numpy(as_token_ids(study.windows[window]))[None]
        with record(study.model, path, store="qkv"), torch.no_grad():
            study.model.model.base_model(ids.to(study.model.model.device), use_cache=False)
    return open_trace(path)


def schedules_of(trace, policy, budget, seed=0):
    """``evicted_at`` of a policy replayed on a trace, int64 [layers, kv_heads, T]."""
    found = schedules(trace, policy, budget, seed=seed)
    heads = trace.kv_heads
    return np.array([[found[layer, head] for head in heads(layer)] for layer in trace.layers])


def _scheduled(label, name, budget):
    """The arm in which the model follows a schedule chosen on a trace of the full cache."""

    def run(study, window, reference):
        k = parse_budget(budget).resolve(study.tokens)
        with tempfile.TemporaryDirectory() as folder:
            replayed = schedules_of(recorded(study, window, folder), make_policy(name), k)

        def choosers(layer, kv_heads):
            return [((head,), ScheduleChooser(replayed[layer, head])) for head in range(kv_heads)]

        ids = study.windows[window]
        return evaluate_following(study.model, ids, choosers, reference=reference)

    return Arm(label, {"kind": "schedule", "policy": name, "budget": budget}, run)
