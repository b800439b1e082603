"""What was measured of the guarantee, as two tables: one row per step, one row per head."""

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from h2o_theory.submodular import (
    Conditions,
    GuaranteeBounds,
    guarantee_bounds,
    paper_premises,
)

__all__ = ["MeasuredGuarantee", "head_summary", "step_table"]

_ROUNDING = 1e-9
_PER_STEP = tuple(field.name for field in fields(Conditions) if field.type is np.ndarray)
_BOUNDS = tuple(field.name for field in fields(GuaranteeBounds) if field.name != "ratio")


@dataclass(frozen=True, eq=False)
class MeasuredGuarantee:
    """The guarantee along one policy's schedule on the chosen heads of a trace.

    Attributes
    ----------
    steps : pandas.DataFrame
        One row per layer, kv_head and step from the last before the cache is full. The columns
        are the fields of :class:`h2o_theory.submodular.Conditions` (values, theta, gamma in both
        directions, swap loss, eps0 as ``excess``) and of
        :class:`h2o_theory.submodular.GuaranteeBounds`, and

        - ``vacuous``: the paper's bound at the measured constants is not above 0;
        - ``paper_fails``: the ratio it speaks of lies below it.

        Neither is known at the last step, where the next best value is not: both are False there.
    heads : pandas.DataFrame
        One row per layer and kv_head: the premises of Theorem 4.4
        (:class:`h2o_theory.submodular.Premises`), least ratio, the bounds at the last step (the
        paper's at the one before, the last it is known of), and

        - ``informative_steps``: evictions after which the induction (``repaired``) still proves at
          least half of what the policy achieves;
        - ``vacuous_share``, ``paper_fails``: share and number of steps, but the last.
    policy, parameters, budget : str
        As resolved and as asked for.
    budget_tokens, prefill, tokens : int
    exact, approximate : str
        What was taken for f and f~.
    trace, trace_id, model : str
    """

    steps: pd.DataFrame
    heads: pd.DataFrame
    policy: str
    parameters: str
    budget: str
    budget_tokens: int
    prefill: int
    tokens: int
    exact: str
    approximate: str
    trace: str
    trace_id: str
    model: str


def step_table(layer: int, kv_head: int, conditions: Conditions) -> pd.DataFrame:
    """One head's rows of :attr:`MeasuredGuarantee.steps`."""
    bounds = guarantee_bounds(conditions)
    columns = {"layer": layer, "kv_head": kv_head}
    columns |= {name: getattr(conditions, name) for name in _PER_STEP}
    columns |= {"ratio": bounds.ratio} | {name: getattr(bounds, name) for name in _BOUNDS}
    table = pd.DataFrame(columns)
    table["vacuous"] = table["paper"] <= 0
    table["paper_fails"] = table["ratio_next"] < table["paper"] - _ROUNDING
    return table


def head_summary(
    layer: int, kv_head: int, conditions: Conditions, steps: pd.DataFrame
) -> dict[str, Any]:
    """One head's row of :attr:`MeasuredGuarantee.heads`."""
    half = steps["repaired"].to_numpy() < steps["ratio"].to_numpy() / 2
    last = steps.iloc[-1]
    return {
        "layer": layer,
        "kv_head": kv_head,
        "steps": len(steps) - 1,
        "best_exact_share": float((conditions.best_lower == conditions.best_upper).mean()),
        "ratio_min": float(steps["ratio"].min()),
        "ratio_last": float(last["ratio"]),
        "direct_last": float(last["direct"]),
        "together_last": float(last["together"]),
        "repaired_last": float(last["repaired"]),
        "uniform_last": float(last["uniform"]),
        "paper_last": float(steps["paper"].iloc[-2]),
        "informative_steps": int(half.argmax()) - 1 if half.any() else len(steps) - 1,
        "vacuous_share": float(steps["vacuous"][:-1].mean()),
        "paper_fails": int(steps["paper_fails"].sum()),
        **asdict(paper_premises(conditions)),
    }
