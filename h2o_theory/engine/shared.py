"""Retained sets that several kv_heads share: decided once, from the rows of all heads together."""

import numpy as np

from h2o_theory.engine.rows import sink_share
from h2o_theory.engine.run import make_run
from h2o_theory.engine.threads import in_threads

__all__ = ["decide_shared"]

_BLOCK_BYTES = 64 * 2**20
"""Rows of all heads that share a set, per block."""


def decide_shared(trace, tasks, threads=1, progress=None):
    """Schedules of the sets that heads share, ``{layer: {index of task: schedule}}``.

    A set of a layer is decided by all its recorded heads and a set of the whole model by all
    recorded layers, whichever were chosen.

    Parameters
    ----------
    trace : Trace
    tasks : dict
        ``{layer: [Task, ...]}``, those of any one kv_head of each chosen layer, in the same order;
        budgets may differ from layer to layer.
    """
    schedules, layers = {layer: {} for layer in tasks}, sorted(tasks)
    for scope, groups in (("layer", [[layer] for layer in layers]), ("model", [trace.layers])):
        chosen = [i for i, task in enumerate(tasks[layers[0]]) if task.policy.scope == scope]
        if not chosen:
            continue
        work = []
        for group in groups:
            own = tasks[min(set(group) & set(layers))]
            work.append((group, [own[i] for i in chosen]))
        label = f"sets shared by the {scope}"
        found = in_threads(lambda job: _schedules(trace, *job), work, threads, progress, label)
        for group, decided in zip(groups, found, strict=True):
            for layer in set(group) & set(layers):
                schedules[layer].update(zip(chosen, decided, strict=True))
    return schedules


def _schedules(trace, layers, tasks):
    """The policy sees the rows of all the layers' query heads as one group.

    O(H x B x T) memory for H query heads and blocks of B rows; a clairvoyant policy takes 8 T^2
    bytes besides. The random stream is that of the first head.
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
    if any(task.policy.needs_future for task in tasks):
        mean_rows = np.concatenate([rows.mean(axis=0) for _, rows, _ in blocks()])
    contexts = [task.context(trace.tokens, layers[0], 0) for task in tasks]
    runs = [
        make_run(task.policy, context, mean_rows)
        for task, context in zip(tasks, contexts, strict=True)
    ]
    for start, rows, shares in blocks():
        for run in runs:
            run.advance(rows, start, shares)
    return [run.evicted_at for run in runs]
