"""The table of a sweep: every cell in the order of the grid, the same bytes whoever computed it."""

import pandas as pd

from h2o_theory.engine.columns import with_whole_parts
from h2o_theory.engine.replay import COLUMNS
from h2o_theory.store import REPLAY_ROOMS, new_file, versions

__all__ = ["SWEEP_COLUMNS", "write_table"]

SWEEP_COLUMNS = (*(name for name in COLUMNS if name != "seconds"), "status", "reason")
"""Columns of a sweep's table: those of a replay but the time taken, which is never the same."""


def write_table(out, spec, traces, cells, records, failures):
    """Write ``results.parquet`` atomically; returns its path.

    Raises
    ------
    CannotWrite
    """
    lines = []
    for cell in cells:
        trace = traces[cell.trace]
        line = {
            "trace": trace.name,
            "trace_id": trace.trace_id,
            "model": trace.spec.model.get("id", "unknown"),
            "tokens": trace.tokens,
            "group": trace.layer(cell.head[0]).group,
            "status": "done",
            "reason": "",
        }
        found = records[cell.key]
        if found is None:
            layer, kv_head = cell.head
            own = cell.run.columns(cell.head)
            found = {"layer": layer, "kv_head": kv_head, **own, "loop": "open"}
            line |= {"status": "failed", "reason": failures[cell.key]}
        lines.append(line | found)
    table = with_whole_parts(pd.DataFrame(lines).reindex(columns=list(SWEEP_COLUMNS)))
    table.attrs["provenance"] = _provenance(traces)
    path = out / "results.parquet"
    hint = "Make room and run the same sweep again: finished cells are kept"
    with new_file(path, hint) as temporary:
        table.to_parquet(temporary, index=False)
    return path


def _provenance(traces):
    """What the table came from, without anything that differs from run to run."""
    return {
        "trace": ", ".join(trace.name for trace in traces),
        "trace_id": ", ".join(trace.trace_id for trace in traces),
        "command": "h2o-theory sweep",
        # Shards may run under several versions of Python, which decide no number.
        "versions": {k: v for k, v in versions(*REPLAY_ROOMS).items() if k != "python"},
    }
