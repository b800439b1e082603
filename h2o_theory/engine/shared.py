"""Retained sets that several kv_heads share: decided once, from the rows of all heads together."""

import dataclasses
from typing import Any

import numpy as np

from h2o_theory.annotations import Progress
from h2o_theory.engine.admission import Run
from h2o_theory.engine.rows import sink_share
from h2o_theory.engine.run import make_run
from h2o_theory.engine.threads import in_threads

__all__ = ["decide_shared"]

_BLOCK_BYTES = 64 * 2**20
"""Rows of all heads that share a set, per block."""


def decide_shared(
    trace: Any,
    runs: list[Run],
    layers: list[int],
    threads: int = 1,
    progress: Progress | None = None,
) -> dict[tuple[Run, int], np.ndarray]:
    """Schedules of the sets that heads share, ``{(run, layer): schedule}``.

    A set of a layer is decided by all its recorded heads and a set of the whole model by all
    recorded layers, whichever of them the runs are about.

    Parameters
    ----------
    trace : Trace
    runs : list of Run
        Those whose sets are not shared are passed over.
    layers : list of int
    """
    found: dict[tuple[Run, int], np.ndarray] = {}
    layers = sorted(set(layers))
    for scope, groups in (("layer", [[layer] for layer in layers]), ("model", [trace.layers])):
        chosen = [run for run in runs if run.policy.scope == scope]
        if not chosen:
            continue
        work = [(group, min(set(group) & set(layers)), chosen) for group in groups]
        label = f"sets shared by the {scope}"
        decided = in_threads(lambda job: _schedules(trace, *job), work, threads, progress, label)
        for group, schedules in zip(groups, decided, strict=True):
            for layer in set(group) & set(layers):
                found.update(
                    ((run, layer), schedule)
                    for run, schedule in zip(chosen, schedules, strict=True)
                )
    return found


def _schedules(trace, layers, budgeted, runs):
    """The policy sees the rows of all the layers' query heads as one group.

    O(H x B x T) memory for H query heads and blocks of B rows; a clairvoyant policy takes 8 T^2
    bytes besides. The random stream is that of the first head, the
    budget that of layer ``budgeted``.
    """
    heads = [(layer, head) for layer in layers for head in trace.kv_heads(layer)]
    group = sum(trace.layer(layer).group for layer, _ in heads)
    block_rows = min(max(_BLOCK_BYTES // (8 * group * trace.tokens), 1), 256)

    def blocks():
        for parts in zip(*(trace.blocks(*head, block_rows) for head in heads), strict=True):
            rows = [rows for _, rows in parts]
            shares = [
                sink_share(trace, layer, own) for (layer, _), own in zip(heads, rows, strict=True)
            ]
            yield parts[0][0], np.concatenate(rows), np.concatenate(shares)

    mean_rows = None
    if any(run.policy.needs_future for run in runs):
        mean_rows = np.concatenate([rows.mean(axis=0) for _, rows, _ in blocks()])
    loops = []
    for run in runs:
        own = next(head for head in run.tokens if head[0] == budgeted)
        context = dataclasses.replace(run.context(*own), layer=layers[0], kv_head=0)
        loops.append(make_run(run.policy, context, mean_rows))
    for start, rows, shares in blocks():
        for loop in loops:
            loop.advance(rows, start, shares)
    return [loop.evicted_at for loop in loops]
