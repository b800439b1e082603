"""Measure the guarantee of a policy on recorded rows."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from h2o_theory.annotations import FloatArray, IntArray, Progress
from h2o_theory.budgets import parse_budgets
from h2o_theory.engine import schedules
from h2o_theory.engine.arguments import chosen_heads, to_prefill
from h2o_theory.engine.columns import policy_columns
from h2o_theory.errors import BadArgument, BadBudget
from h2o_theory.guarantee.tables import MeasuredGuarantee, head_summary, step_table
from h2o_theory.optimum.shapes import Shape
from h2o_theory.policies import Policy, parse_policies
from h2o_theory.submodular import (
    READINGS,
    make_reading,
    measure_conditions,
    steps_with_a_choice,
)
from h2o_theory.submodular.dynamic import DynamicFunction
from h2o_theory.trace import Trace

__all__ = ["measure_guarantee"]

_TWINS = {"row": "row_cached", "accumulated": "accumulated_cached"}


def measure_guarantee(
    trace: Trace,
    policy: Any = "h2o",
    budget: str | int = "10%",
    function: str | Callable[..., DynamicFunction] = "accumulated",
    *,
    shape: Shape | None = None,
    approximate: str | Callable[..., DynamicFunction] | None = "cached",
    prefill: int = 0,
    layers: list[int] | None = None,
    kv_heads: list[int] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> MeasuredGuarantee:
    r"""What the H2O paper's guarantee says of a policy on recorded rows, and what follows instead.

    At each step after the cache is full: the value of the policy's set, the best value of the step
    (opt of Definition D.27), the smallest theta, gamma (as defined and as used) and eps0 that
    hold, the loss of the swap, the bounds that follow, and whether the paper's premises
    (theta = gamma = alpha / (10 n), swaps by rule D.22) hold and its conclusion says anything.

    Parameters
    ----------
    trace : Trace
    policy : str or policy
        One eviction policy, as for :func:`h2o_theory.replay`.
    budget : str or int
        One budget k of at least 2, the query's own entry included; the paper's k is k - 1.
    function : str or callable
        f: one of ``row, row_cached, accumulated, accumulated_cached, row_sums`` (see
        :mod:`h2o_theory.submodular.readings`), or ``function(rows, evicted_at)``, rows
        [G, T, T], returning a :class:`h2o_theory.submodular.DynamicFunction`.
    shape : Shape, optional
        h of a reading by name; linear by default. ``row_sums`` is worth its time with a concave
        one only.
    approximate : str, callable or None
        f~, what the policy sees: ``"cached"`` (default) is the reading of the same name with
        suffix ``_cached`` for ``row`` and ``accumulated``, and f itself for the others; None is
        f itself; else as ``function``.
    prefill : int
        Prompt rows before the first eviction.
    layers, kv_heads : list of int, optional
        All by default.
    seed : int
        For random policies.
    progress : callable (done, total, label), optional
        Called after each head.

    Returns
    -------
    MeasuredGuarantee

    Raises
    ------
    UnknownName, BadBudget, OutOfRange, BadArgument
        Before any head is measured, except for what a callable does.

    Notes
    -----
    ``row_cached`` and ``accumulated_cached`` renormalise each query head's row over what the cache
    holds and take the mean of the group. Less than half a second a head at T = 512, two for
    ``row_sums`` (greedy at each step); O(T^2) and 8 (2 G + 3) T^2 bytes a head.
    """
    _require_function(function, "function", READINGS)
    if approximate is not None:
        _require_function(approximate, "approximate", ("cached", *READINGS))
    heads = chosen_heads(trace, layers, kv_heads)
    to_prefill(prefill, trace.tokens)
    policy, asked = _one_policy(policy), _one_budget(budget)
    tokens = asked.resolve(trace.tokens)
    steps_with_a_choice(trace.tokens, tokens, prefill)
    decided = schedules(
        trace,
        policy,
        asked.text,
        prefill=prefill,
        layers=layers,
        kv_heads=kv_heads,
        seed=seed,
        progress=progress,
    )
    steps, summaries, names = [], [], ("", "")
    for done, (layer, kv_head) in enumerate(heads, start=1):
        rows = np.concatenate([block for _, block in trace.blocks(layer, kv_head)], axis=1)
        evicted_at = decided[layer, kv_head]
        exact, seen = _functions(function, approximate, shape, rows, evicted_at)
        conditions = measure_conditions(
            exact, evicted_at, tokens, approximate=seen, prefill=prefill
        )
        steps.append(step_table(layer, kv_head, conditions))
        summaries.append(head_summary(layer, kv_head, conditions, steps[-1]))
        names = conditions.exact, conditions.approximate
        if progress:
            progress(done, len(heads), "guarantee")
    return MeasuredGuarantee(
        steps=pd.concat(steps, ignore_index=True),
        heads=pd.DataFrame(summaries),
        policy=policy.name,
        parameters=policy_columns(policy, tokens)["parameters"],
        budget=asked.text,
        budget_tokens=tokens,
        prefill=prefill,
        tokens=trace.tokens,
        exact=names[0],
        approximate=names[1],
        trace=trace.name,
        trace_id=trace.trace_id,
        model=str(trace.spec.model.get("id", "unknown")),
    )


def _one_policy(policy: Any) -> Any:
    """The one policy, which has to evict."""
    found = parse_policies(policy)
    if len(found) != 1:
        raise BadArgument("policy must be one policy", got=len(found))
    if not isinstance(found[0], Policy) or not found[0].follows_budget:
        raise BadArgument(
            "policy must be one that evicts, such as h2o",
            got=getattr(found[0], "name", repr(found[0])),
        )
    return found[0]


def _one_budget(budget: str | int) -> Any:
    found = parse_budgets(budget)
    if len(found) != 1:
        raise BadBudget("budget must be one budget", got=len(found))
    return found[0]


def _require_function(function: Any, name: str, names: Sequence[str]) -> None:
    if not callable(function) and function not in names:
        raise BadArgument(
            f"{name} must be callable or one of " + ", ".join(names), got=repr(function)
        )


def _functions(
    function: Any, approximate: Any, shape: Shape | None, rows: FloatArray, evicted_at: IntArray
) -> tuple[DynamicFunction, DynamicFunction | None]:
    """f, and f~ or None where it is f."""

    def made(wanted: Any) -> DynamicFunction:
        if callable(wanted):
            return wanted(rows, evicted_at)
        return make_reading(wanted, rows, shape=shape, evicted_at=evicted_at)

    if approximate == "cached":
        approximate = None if callable(function) else _TWINS.get(function)
    same = approximate is None or approximate == function
    return made(function), None if same else made(approximate)
