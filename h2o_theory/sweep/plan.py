"""The cells of a sweep, each with its address, and the units of work they are grouped into."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from h2o_theory.annotations import Head
from h2o_theory.engine.admission import Run, admit, admit_policies
from h2o_theory.engine.arguments import chosen_heads
from h2o_theory.errors import BadArgument
from h2o_theory.store import REPLAY_ROOMS, code_identity, identity, policy_identity
from h2o_theory.trace import Trace, open_trace

__all__ = ["Cell", "Unit", "group_cells", "plan_cells"]


@dataclass(frozen=True, eq=False)
class Cell:
    """A run on one kv_head of one trace.

    Attributes
    ----------
    key : str
        SHA-256 of all that the result depends on: the address of the cell's file.
    trace : int
        Index into the spec's traces.
    head : (layer, kv_head)
    run : Run
    """

    key: str
    trace: int
    head: Head
    run: Run


@dataclass(frozen=True)
class Unit:
    """Cells that are replayed together: their head's rows are generated once for all of them."""

    trace: Any
    cells: tuple[Cell, ...]
    optimum: bool

    def halves(self) -> list["Unit"]:
        """Two units with half of the cells each."""
        middle = len(self.cells) // 2
        parts = (self.cells[:middle], self.cells[middle:])
        return [Unit(self.trace, cells, self.optimum) for cells in parts]


def plan_cells(spec: Any) -> tuple[list[Trace], list[Cell]]:
    """All cells of a spec in the order of its table, with everything checked and resolved.

    Returns
    -------
    (list of Trace, list of Cell)

    Raises
    ------
    H2OTheoryError
        What :func:`h2o_theory.replay` raises for the same trace, policies and budgets.
    """
    traces = [trace if isinstance(trace, Trace) else open_trace(trace) for trace in spec.traces]
    _require_distinct("traces", [trace.trace_id for trace in traces])
    given, cells = admit_policies(spec.policies, optimum=spec.optimum), []
    # One object each for all traces: their identities are computed once.
    identities = {id(policy): policy_identity(policy) for policy in given}
    common = {"code": code_identity(*REPLAY_ROOMS), "optimum": spec.optimum}
    for place, trace in enumerate(traces):
        heads = chosen_heads(trace, spec.layers, spec.kv_heads)
        policies = admit_policies(given, trace, {layer for layer, _ in heads})
        for prefill in spec.prefill:
            for seed in spec.seeds:
                runs = admit(trace, policies, spec.budgets, heads, prefill=prefill, seed=seed)
                for head in heads:
                    for run in runs:
                        key = identity(
                            trace=trace.trace_id,
                            head=head,
                            policy=identities[id(run.policy)],
                            budget=run.tokens[head],
                            budget_text=run.budget,
                            prefill=prefill,
                            seed=seed,
                            **common,
                        )
                        cells.append(Cell(key, place, head, run))
    _require_distinct("cells", [cell.key for cell in cells])
    return traces, cells


def group_cells(spec: Any, cells: list[Cell]) -> list[Unit]:
    """Units of the given cells: a kv_head each, or what must be decided together.

    A policy whose set serves a layer (or the model) joins the heads of the layer (or of all
    layers) that are replayed into one unit, so that its set is decided once.
    """
    scopes = {}
    for cell in cells:
        scopes.setdefault(cell.trace, set()).add(cell.run.policy.scope)
    groups = {}
    for cell in cells:
        place = (cell.trace,)
        if "model" not in scopes[cell.trace]:
            place += cell.head[:1]
            if "layer" not in scopes[cell.trace]:
                place += cell.head[1:]
        groups.setdefault(place, []).append(cell)
    return [
        Unit(
            _found_anywhere(spec.traces[own[0].trace]),
            tuple(own),
            spec.optimum,
        )
        for own in groups.values()
    ]


def _found_anywhere(trace):
    """A path that leads to the trace from any working directory; a trace in memory as it is."""
    return trace if isinstance(trace, Trace) else str(Path(trace).resolve())


def _require_distinct(what, keys):
    if len(set(keys)) < len(keys):
        raise BadArgument("the grid holds the same thing twice", where=what)
