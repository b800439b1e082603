"""Masking heavy hitters against masking other tokens, as many of them."""

import numpy as np

from h2o_theory.experiments.result import ExperimentResult
from h2o_theory.experiments.study import Arm
from h2o_theory.live.chooser import ScheduleChooser
from h2o_theory.live.evaluate import evaluate_following
from h2o_theory.live.masking import HiddenKeys

__all__ = ["mask_heavy_hitters"]

SINKS, STRETCH = 4, 16


class _Tally(ScheduleChooser):
    """Shows everything and adds up what each key receives, as a mean over the group."""

    needs_rows = True

    def __init__(self, tokens, received):
        super().__init__(np.full(tokens, tokens, dtype=np.int64))
        self._received = received

    def advance(self, rows, start, sink_share=None):
        seen = np.where(np.arange(rows.shape[2]) < start + rows.shape[1], rows, 0.0)
        self._received += seen.mean(axis=0).sum(axis=0)


class _NoRecent(ScheduleChooser):
    """Hides the m keys before each query's own."""

    def __init__(self, tokens, count):
        super().__init__(np.full(tokens, tokens, dtype=np.int64))
        self._count = count

    def visible(self, positions, start, stop):
        age = np.arange(start, stop)[:, None] - positions
        return (age == 0) | (age > self._count)


def mask_heavy_hitters(study, *, shares=(0.01, 0.05), seed=0):
    """Hide the top m keys by accumulated attention from all queries but their own, per kv_head.

    Against as many keys: at random; at random among neighbours (the same stretch of 16 positions,
    so that they have been visible for as long); the most recent ones; the first ``4`` positions
    alone (sinks); and heavy hitters other than the first 4. Accumulated attention comes from the
    full cache on the same window.

    Parameters
    ----------
    study : Study
    shares : sequence of float
        m as a share of T.
    seed : int

    Returns
    -------
    ExperimentResult
    """
    counts = [max(1, int(share * study.tokens)) for share in shares]
    arms = [_hiding("sinks (first 4)", study, {"which": "sinks"}, _sinks)]
    for m in counts:
        for label, choose in _CHOICES.items():
            what = {"which": label, "m": m, "seed": seed}
            arms.append(_hiding(f"{m} {label}", study, what, choose))
        arms.append(_recent(m, study.tokens))
    found = study.compare(arms)
    findings = {arm.label: found.finding(arm.label) for arm in arms}
    for m in counts:
        for other in ("random", "random neighbours"):
            findings[f"{m} heavy hitters over {m} {other}"] = found.finding(
                f"{m} heavy hitters", f"{m} {other}"
            )
    return ExperimentResult.of(
        study,
        "removal",
        "Does hiding the heavy hitters hurt more than hiding as many other tokens?",
        _answer(findings, counts),
        findings,
        found.table(),
        seed=seed,
    )


def _answer(findings, counts):
    return "; ".join(
        f"hiding {m} of {kind} costs {findings[f'{m} {kind}']['value']:+.3f} nats per token"
        for m in counts
        for kind in ("heavy hitters", "heavy hitters but sinks", "random neighbours")
    )


def _top(received, m, rng):
    return np.argsort(-received, kind="stable")[:m]


def _top_but_sinks(received, m, rng):
    later = received.copy()
    later[:SINKS] = -1.0
    return _top(later, m, rng)


def _random(received, m, rng):
    return rng.choice(len(received), size=m, replace=False)


def _neighbours(received, m, rng):
    """As many other keys from the stretches that hold the heavy hitters."""
    top = set(_top(received, m, rng).tolist())
    chosen = []
    for j in sorted(top):
        first = j - j % STRETCH
        free = [
            i
            for i in range(first, min(first + STRETCH, len(received)))
            if i not in top and i not in chosen
        ]
        if free:
            chosen.append(int(rng.choice(free)))
    return np.array(chosen, dtype=np.int64)


def _sinks(received, m, rng):
    return np.arange(min(SINKS, len(received)))


_CHOICES = {
    "heavy hitters": _top,
    "heavy hitters but sinks": _top_but_sinks,
    "random": _random,
    "random neighbours": _neighbours,
}


def _hiding(label, study, what, choose):
    def run(study, window, reference):
        received = _received(study, window)

        def choosers(layer, kv_heads):
            made = []
            for head in range(kv_heads):
                rng = np.random.default_rng([what.get("seed", 0), layer, head])
                hidden = np.zeros(study.tokens, dtype=bool)
                hidden[choose(received[layer, head], what.get("m"), rng)] = True
                made.append(((head,), HiddenKeys(hidden)))
            return made

        ids = study.windows[window]
        return evaluate_following(study.model, ids, choosers, reference=reference)

    return Arm(label, {"kind": "removal", **what}, run)


def _recent(m, tokens):
    def run(study, window, reference):
        def choosers(layer, kv_heads):
            return [((head,), _NoRecent(tokens, m)) for head in range(kv_heads)]

        ids = study.windows[window]
        return evaluate_following(study.model, ids, choosers, reference=reference)

    return Arm(f"{m} most recent", {"kind": "removal", "which": "most recent", "m": m}, run)


def _received(study, window):
    """Accumulated attention with the full cache, float64 [layers, kv_heads, T]."""

    def compute():
        totals = {}

        def choosers(layer, kv_heads):
            totals[layer] = np.zeros((kv_heads, study.tokens))
            return [
                ((head,), _Tally(study.tokens, totals[layer][head])) for head in range(kv_heads)
            ]

        evaluate_following(study.model, study.windows[window], choosers)
        return {}, {"received": np.stack([totals[layer] for layer in sorted(totals)])}

    return study.kept(compute, kind="received", ids=study.windows[window])[1]["received"]
