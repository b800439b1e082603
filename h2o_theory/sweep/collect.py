"""The table of a sweep: every cell in the order of the grid, the same bytes whoever computed it."""

import numba
import numpy as np
import pandas as pd

import h2o_theory
from h2o_theory.engine.replay import COLUMNS
from h2o_theory.policies import parse_policies
from h2o_theory.store import REPLAY_ROOMS, code_identity, new_file

__all__ = ["SWEEP_COLUMNS", "write_table"]

SWEEP_COLUMNS = (*(name for name in COLUMNS if name != "seconds"), "status", "reason")
"""Columns of a sweep's table: those of a replay but the time taken, which is never the same."""


def write_table(out, spec, traces, cells, records, failures):
    """Write ``results.parquet`` atomically; returns its path.

    Raises
    ------
    CannotWrite
    """
    policies = parse_policies(spec.policies)
    lines = []
    for cell in cells:
        trace, policy = traces[cell.trace], policies[cell.policy]
        line = {
            "trace": trace.name,
            "trace_id": trace.trace_id,
            "model": trace.spec.model.get("id", "unknown"),
            "tokens": trace.tokens,
            "group": trace.layer(cell.layer).group,
            "status": "done",
            "reason": "",
        }
        found = records[cell.key]
        if found is None:
            found = {
                "layer": cell.layer,
                "kv_head": cell.kv_head,
                "policy": policy.name,
                "parameters": policy.describe(cell.budget),
                "budget": cell.budget_text,
                "budget_tokens": cell.budget,
                "prefill": cell.prefill,
                "seed": cell.seed,
                "level": "open",
            }
            line |= {"status": "failed", "reason": failures[cell.key]}
        lines.append(line | found)
    table = pd.DataFrame(lines).reindex(columns=list(SWEEP_COLUMNS))
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
        "versions": {
            "engine": f"{h2o_theory.__version__}+{code_identity(*REPLAY_ROOMS)[:12]}",
            "numpy": np.__version__,
            "numba": numba.__version__,
        },
    }
