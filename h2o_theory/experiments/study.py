"""What every experiment is made of: arms run on windows of a text, each cell computed once."""

import math
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from h2o_theory.budgets import parse_budget
from h2o_theory.live.admission import admit_live_policies
from h2o_theory.live.campaign import windows_of
from h2o_theory.live.evaluate import evaluate, full_run
from h2o_theory.live.summary import paired_increase
from h2o_theory.store import (
    LIVE_ROOMS,
    CellStore,
    code_identity,
    identity,
    lock_output,
    model_identity,
    policy_identity,
)

__all__ = ["FULL", "Arm", "Comparison", "Study", "policy_arm"]


@dataclass(frozen=True)
class Arm:
    """One way to run the model.

    Attributes
    ----------
    label : str
    what : dict
        All that decides the result beside model and tokens; it names the cell.
    run : callable (study, window, reference) -> LiveResult, or None
        None is the full cache.
    compared : bool
        Whether agreement and KL are measured against the full cache, which is then run besides.
    policy, policy_name : str
        The policy as asked for and by its name, where one decides.
    """

    label: str
    what: dict
    run: object = field(compare=False)
    compared: bool = True
    policy: str = ""
    policy_name: str = ""


MINUTES = 4096
"""Tokens from which on a single cell takes so long that it shows its own progress."""

FULL = Arm("full cache", {"kind": "full"}, None, policy="full", policy_name="full")


def policy_arm(policy, budget, tokens, *, label=None, positions="original", seed=0, compared=True):
    """The arm in which a policy evicts at a budget, ``"20%"`` or a number, of T = ``tokens``."""
    (policy,) = admit_live_policies(policy)
    budget = parse_budget(budget).resolve(tokens)
    options = {"prefill": 0, "positions": positions, "seed": seed}
    what = {
        "kind": "loss",
        "policy": policy_identity(policy),
        "budget": budget,
        **options,
    }
    if not compared:
        what["compared"] = False
    label = label or f"{policy.asked} at {budget}"

    def run(study, window, reference):
        ids, progress = study.windows[window], None
        if study.progress and len(ids) >= MINUTES:
            progress = _named(study.progress, f"{label}, window {window}")
        return evaluate(
            study.model, ids, policy, budget, reference=reference, progress=progress, **options
        )

    return Arm(label, what, run, compared, policy.asked, policy.name)


def _named(progress, label):
    return lambda done, total, _: progress(done, total, label)


class Study:
    """A model, windows of a text, and the folder of finished cells.

    Parameters
    ----------
    model : LoadedModel
    ids : token ids
        Of the text.
    out : path
    tokens : int or None
        Length T of a window; None for one window of all.
    windows : int
    text : str
        Its name.
    progress : callable (done, total, label), optional
    """

    def __init__(self, model, ids, out, *, tokens=512, windows=1, text="text", progress=None):
        self.model, self.text, self.progress = model, text, progress
        self.windows = windows_of(ids, tokens, windows)
        self.tokens = len(self.windows[0])
        self.store = CellStore(out)
        self._base = {
            "code": code_identity(*LIVE_ROOMS, "experiments", "statistics"),
            "model": model_identity(model.model),
        }
        self._full = None, None

    def full(self, window):
        """The :class:`FullRun` of a window; the latest one is kept."""
        if self._full[0] != window:
            self._full = window, full_run(self.model, self.windows[window])
        return self._full[1]

    def cell(self, window, arm):
        """Record and arrays of an arm on a window, computed if they are not on disk."""
        ids = self.windows[window]
        return self.kept(lambda: self._compute(window, arm), ids=ids, **arm.what)

    def kept(self, compute, **what):
        """``(record, arrays)`` of anything named by ``what`` and this model."""
        name = identity(**self._base, **what)
        with lock_output(self.store.folder):
            found = self.store.load(name)
            if found is None:
                found = compute()
                self.store.save(name, *found)
        return found

    def compare(self, arms, base=FULL):
        """Run all arms on all windows, and the one that they are measured against.

        Returns
        -------
        Comparison
        """
        arms = [base, *(arm for arm in arms if arm != base)]
        found = {arm.label: [] for arm in arms}
        for window in range(len(self.windows)):
            for done, arm in enumerate(arms, start=window * len(arms) + 1):
                found[arm.label].append(self.cell(window, arm))
                if self.progress:
                    self.progress(done, len(arms) * len(self.windows), "cells")
        return Comparison(found, arms)

    def _compute(self, window, arm):
        reference = self.full(window) if arm.compared else None
        if arm.run is None:
            record = {"agreement": 1.0, "kl": 0.0, "kv_bytes": reference.kv_bytes}
            return record, {"losses": reference.losses, "sizes": reference.sizes}
        result = arm.run(self, window, reference)
        rows = slice(result.first - 1, -1)
        record = {
            "agreement": float(result.agreement[rows].mean()),
            "kl": float(result.kl[rows].mean()),
            "kv_bytes": result.peak_kv_bytes,
        }
        return record, {"losses": result.losses, "sizes": result.sizes}


class Comparison:
    """The cells of several arms on the same windows.

    Attributes
    ----------
    labels : list of str
    arms : dict of str to Arm
    base : str
        The one that the others are measured against.
    """

    def __init__(self, found, arms):
        self._found, self.arms = found, {arm.label: arm for arm in arms}
        self.labels, self.base = list(found), arms[0].label

    def losses(self, label):
        """Losses of all windows one after another, [windows x T]; the first of each is NaN."""
        return np.concatenate([arrays["losses"] for _, arrays in self._found[label]])

    def increase(self, label, over=None):
        """Loss of one arm over another, by default the base: ``(mean, low, high)``, nats per
        token of the same tokens."""
        return paired_increase([self.losses(label)], [self.losses(over or self.base)])

    def finding(self, label, over=None):
        """:meth:`increase` with its n, for a result's findings."""
        value, low, high = self.increase(label, over)
        n = int(np.isfinite(self.losses(label) - self.losses(over or self.base)).sum())
        return {"value": value, "low": low, "high": high, "n": n, "unit": "nats per token"}

    def table(self):
        """arm, n, perplexity, loss_increase with low and high, agreement, kl, kv_bytes."""
        lines = []
        for label in self.labels:
            losses, records = self.losses(label), [record for record, _ in self._found[label]]
            value, low, high = self.increase(label)
            lines.append(
                {
                    "arm": label,
                    "n": int(np.isfinite(losses).sum()),
                    "perplexity": math.exp(np.nanmean(losses)),
                    "loss_increase": value,
                    "low": low,
                    "high": high,
                    "agreement": float(np.mean([record["agreement"] for record in records])),
                    "kl": float(np.mean([record["kl"] for record in records])),
                    "kv_bytes": max(record["kv_bytes"] for record in records),
                }
            )
        return pd.DataFrame(lines)
