"""One unit of work, as it runs in a worker process."""

import functools
from typing import Any

from threadpoolctl import threadpool_limits

from h2o_theory.engine.head import replay_head
from h2o_theory.engine.shared import decide_shared
from h2o_theory.sweep.plan import Unit
from h2o_theory.trace import Trace, open_trace

__all__ = ["run_unit"]


def run_unit(unit: Unit) -> list[tuple[str, dict[str, Any] | None, str | None]]:
    """Replay the cells of a unit; returns ``[(key, measures, None) or (key, None, reason)]``.

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
    results, by_head = [], {}
    for cell in unit.cells:
        by_head.setdefault(cell.head, []).append(cell)
    runs = list(dict.fromkeys(cell.run for cell in unit.cells))
    with threadpool_limits(1, user_api="blas"):
        shared = decide_shared(trace, runs, [layer for layer, _ in by_head])
        for head, cells in by_head.items():
            own = [cell.run for cell in cells]
            lines = replay_head(trace, head, own, shared, optimum=unit.optimum)
            results += [(cell.key, line, None) for cell, line in zip(cells, lines, strict=True)]
    return results


@functools.lru_cache(maxsize=4)
def _opened(path):
    """An opened trace, kept by the worker: its segments are verified once."""
    return open_trace(path)
