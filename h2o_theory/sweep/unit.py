"""One unit of work, as it runs in a worker process."""

import functools

from threadpoolctl import threadpool_limits

from h2o_theory.engine.head import Task, replay_head
from h2o_theory.engine.shared import decide_shared
from h2o_theory.policies import make_policy
from h2o_theory.trace import Trace, open_trace

__all__ = ["run_unit"]


def run_unit(unit):
    """Replay the cells of a unit; returns ``[(key, record, None) or (key, None, reason)]``.

    A cell that raises fails alone: halves of the unit are tried until it is found.
    """
    try:
        return _replay(unit)
    except Exception as error:  # a user's policy may raise anything
        if len(unit.cells) == 1:
            return [(unit.cells[0].key, None, f"{type(error).__name__}: {error}")]
    return [result for half in unit.halves() for result in run_unit(half)]


def _replay(unit):
    trace = unit.trace if isinstance(unit.trace, Trace) else _opened(str(unit.trace))
    policies = {
        index: make_policy(given) if isinstance(given, str) else given
        for index, given in unit.policies.items()
    }
    results = []
    with threadpool_limits(1, user_api="blas"):
        heads, tasks = {}, {}
        for cell in unit.cells:
            heads.setdefault((cell.layer, cell.kv_head), []).append(cell)
            task = Task(
                policies[cell.policy], cell.budget, cell.budget_text, cell.prefill, cell.seed
            )
            tasks[cell.key] = task
        shared = _shared(trace, [tasks[cell.key] for cell in unit.cells], heads)
        for (layer, kv_head), cells in heads.items():
            own = [tasks[cell.key] for cell in cells]
            decided = {
                index: shared[task][layer] for index, task in enumerate(own) if task in shared
            }
            records = replay_head(trace, layer, kv_head, own, decided, optimum=unit.optimum)
            results += [
                (cell.key, record, None) for cell, record in zip(cells, records, strict=True)
            ]
    return results


def _shared(trace, tasks, heads):
    """Schedules of shared sets, ``{task: {layer: schedule}}``."""
    wanted = list(dict.fromkeys(task for task in tasks if task.policy.scope != "kv_head"))
    layers = sorted({layer for layer, _ in heads})
    found = decide_shared(trace, dict.fromkeys(layers, wanted))
    return {
        task: {layer: found[layer][index] for layer in layers} for index, task in enumerate(wanted)
    }


@functools.lru_cache(maxsize=4)
def _opened(path):
    """An opened trace, kept by the worker: its segments are verified once."""
    return open_trace(path)
