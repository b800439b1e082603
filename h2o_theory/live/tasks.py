"""What a campaign is to run: policies at budgets, checked before any work is done."""

from dataclasses import dataclass

import numpy as np

from h2o_theory.engine.tasks import refuse_repeated
from h2o_theory.errors import BadArgument
from h2o_theory.live.heads import heads_of
from h2o_theory.live.loop import POSITIONS
from h2o_theory.live.refuse import (
    check_budgets,
    check_model_suits,
    check_policy_runs_live,
    resolve_budgets,
)
from h2o_theory.policies import parse_policies
from h2o_theory.policies.base import without_parts
from h2o_theory.store import policy_identity

__all__ = ["LiveTask", "live_tasks"]


@dataclass(frozen=True)
class LiveTask:
    """A policy at a budget.

    Attributes
    ----------
    policy : Policy or PlainPolicy
    text : str
        The budget as asked for.
    budget : int or int64 [layers, kv_heads]
        In tokens; one number where it is the same for all.
    """

    policy: object
    text: str
    budget: object

    @property
    def budget_tokens(self):
        """The budget in tokens, the mean over kv_heads, rounded."""
        return round(float(np.mean(self.budget)))

    @property
    def parameters(self):
        """The policy's resolved parameters; the parts are left out where they differ by kv_head."""
        text = self.policy.describe(self.budget_tokens)
        return text if isinstance(self.budget, int) else without_parts(text)

    @property
    def what(self):
        """What a result depends on, for a cell's identity."""
        return {"policy": policy_identity(self.policy), "budget": self.budget}


def live_tasks(policies, budgets, model, tokens, prefill, positions):
    """A list of :class:`LiveTask`, the full cache first; everything checked.

    Parameters
    ----------
    policies, budgets : str or list
        As for :func:`~h2o_theory.live.campaign.run_live`.
    model : transformers.PreTrainedModel or LoadedModel
    tokens, prefill : int
    positions : str

    Raises
    ------
    BadArgument, BadBudget, UnknownName, OutOfRange, UnsupportedModel
    """
    if positions not in POSITIONS:
        raise BadArgument(
            "unknown positions", where="positions", got=positions, expected=" or ".join(POSITIONS)
        )
    policies = [check_policy_runs_live(policy) for policy in parse_policies(policies)]
    heads = heads_of(model, tokens)
    asked = resolve_budgets(budgets, heads, prefill)
    (full,) = parse_policies("full")
    tasks = [LiveTask(full, "100%", tokens)]
    for policy in policies:
        if not policy.follows_budget:
            continue
        check_budgets(policy, asked)
        check_model_suits(policy, model, positions)
        tasks += [LiveTask(policy, text, _plain(budgets, heads)) for text, budgets in asked]
    refuse_repeated((task.policy.name, task.parameters, task.text) for task in tasks)
    return tasks


def _plain(budgets, heads):
    """Budgets of all kv_heads as one number, or an array where they differ."""
    if len(set(budgets.values())) == 1:
        return next(iter(budgets.values()))
    return np.array([[budgets[layer, h] for h in heads.kv_heads(layer)] for layer in heads.layers])
