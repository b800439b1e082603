"""The cells of a sweep, each with its address, and the units of work they are grouped into."""

from dataclasses import dataclass, field
from pathlib import Path

from h2o_theory.engine.arguments import chosen_heads
from h2o_theory.engine.tasks import check_policies, make_tasks
from h2o_theory.errors import BadArgument
from h2o_theory.store import REPLAY_ROOMS, code_identity, identity, policy_identity
from h2o_theory.trace import Trace, open_trace

__all__ = ["Cell", "Unit", "group_cells", "plan_cells"]


@dataclass(frozen=True)
class Cell:
    """One replay: a policy at a budget on a kv_head.

    Attributes
    ----------
    key : str
        SHA-256 of all that the result depends on: the address of the cell's file.
    trace : int
        Index into the spec's traces.
    policy : int
        Index into the spec's policies.
    scope : str
        The policy's: which kv_heads it must run with.
    """

    key: str
    trace: int
    layer: int
    kv_head: int
    policy: int
    budget: int
    budget_text: str
    prefill: int
    seed: int
    scope: str = field(compare=False)


@dataclass(frozen=True)
class Unit:
    """Cells that are replayed together: their head's rows are generated once for all of them."""

    trace: object
    policies: dict
    cells: tuple
    optimum: bool

    def halves(self):
        """Two units with half of the cells each."""
        middle = len(self.cells) // 2
        parts = (self.cells[:middle], self.cells[middle:])
        return [Unit(self.trace, self.policies, cells, self.optimum) for cells in parts]


def plan_cells(spec):
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
    _refuse_twice("traces", [trace.trace_id for trace in traces])
    policies, version = check_policies(spec.policies), code_identity(*REPLAY_ROOMS)
    identities = [policy_identity(policy) for policy in policies]
    cells = []
    for place, trace in enumerate(traces):
        heads = chosen_heads(trace, spec.layers, spec.kv_heads)
        for prefill in spec.prefill:
            for seed in spec.seeds:
                tasks = make_tasks(
                    trace,
                    policies,
                    spec.budgets,
                    heads,
                    prefill=prefill,
                    seed=seed,
                    optimum=spec.optimum,
                )
                for (layer, kv_head), own in tasks.items():
                    for task in own:
                        index = next(i for i, p in enumerate(policies) if p is task.policy)
                        key = identity(
                            code=version,
                            trace=trace.trace_id,
                            layer=layer,
                            kv_head=kv_head,
                            policy=identities[index],
                            parameters=task.policy.describe(task.budget),
                            budget=task.budget,
                            budget_text=task.budget_text,
                            prefill=prefill,
                            seed=seed,
                            optimum=spec.optimum,
                        )
                        cells.append(
                            Cell(
                                key,
                                place,
                                layer,
                                kv_head,
                                index,
                                task.budget,
                                task.budget_text,
                                prefill,
                                seed,
                                task.policy.scope,
                            )
                        )
    _refuse_twice("cells", [cell.key for cell in cells])
    return traces, cells


def group_cells(spec, cells):
    """Units of the given cells: a kv_head each, or what must be decided together.

    A policy whose set serves a layer (or the model) joins the heads of the layer (or of all
    layers) that are replayed into one unit, so that its set is decided once.
    """
    scopes = {}
    for cell in cells:
        scopes.setdefault(cell.trace, set()).add(cell.scope)
    groups = {}
    for cell in cells:
        place = (cell.trace,)
        if "model" not in scopes[cell.trace]:
            place += (cell.layer,)
            if "layer" not in scopes[cell.trace]:
                place += (cell.kv_head,)
        groups.setdefault(place, []).append(cell)
    return [
        Unit(
            _found_anywhere(spec.traces[own[0].trace]),
            {cell.policy: spec.policies[cell.policy] for cell in own},
            tuple(own),
            spec.optimum,
        )
        for own in groups.values()
    ]


def _found_anywhere(trace):
    """A path that leads to the trace from any working directory; a trace in memory as it is."""
    return trace if isinstance(trace, Trace) else str(Path(trace).resolve())


def _refuse_twice(what, keys):
    if len(set(keys)) < len(keys):
        raise BadArgument("the grid holds the same thing twice", where=what)
