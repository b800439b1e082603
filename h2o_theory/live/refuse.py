"""What cannot run inside a model, and why."""

import numpy as np

from h2o_theory.engine.arguments import checked_prefill
from h2o_theory.errors import BadArgument, BadBudget
from h2o_theory.policies import TENSORS, Policy, parse_budget, parse_policies

__all__ = ["check_policy_runs_live", "resolve_budgets"]


def check_policy_runs_live(policy):
    """The policy named or given, if a running model can follow it.

    Parameters
    ----------
    policy : str, Policy or PlainPolicy

    Returns
    -------
    Policy or PlainPolicy

    Raises
    ------
    UnknownPolicy
        If there is none of that name.
    BadArgument
        For a clairvoyant policy (the rows it reads are yet to be computed), for one whose set
        serves several kv_heads and that looks at queries, keys or values, and for what is no
        policy.
    """
    policies = parse_policies(policy)
    if len(policies) != 1:
        raise BadArgument("one policy at a time", where="policy", got=f"{len(policies)} policies")
    (policy,) = policies
    if not isinstance(policy, Policy) and not hasattr(policy, "rate"):
        raise BadArgument(
            "this is not a policy",
            where="policy",
            got=repr(policy),
            expected="a name, a shipped policy or an instance of a PlainPolicy subclass",
        )
    if policy.kind == "clairvoyant":
        raise BadArgument(
            "a clairvoyant policy cannot run in a model: it reads rows that are yet to be computed",
            where=policy.name,
            hint="Replay it on a recorded trace, or let the model follow a schedule chosen there",
        )
    tensors = set(getattr(policy, "needs", "rows").split()) & set(TENSORS)
    if tensors and policy.scope != "kv_head":
        raise BadArgument(
            "a policy whose set serves several kv_heads can look at rows only",
            where=policy.name,
            got=f"needs {policy.needs}, scope {policy.scope}",
        )
    return policy


def resolve_budgets(policy, budget, tokens, prefill):
    """Budgets in tokens, int64 [1, 1] or as given [layers, kv_heads], and checked.

    Parameters
    ----------
    policy : Policy or PlainPolicy
    budget : int, str or int array broadcastable to [layers, kv_heads]
        ``"20%"`` is a share of ``tokens``.
    tokens, prefill : int

    Raises
    ------
    BadBudget
        For a budget that cannot be read or does not hold the policy's protected parts.
    OutOfRange
        If the prompt leaves no row.
    """
    checked_prefill(prefill, tokens)
    if isinstance(budget, str | int):
        budget = parse_budget(budget).resolve(tokens)
    budgets = np.asarray(tokens if policy.name == "full" else budget)
    if budgets.dtype.kind not in "iu" or budgets.ndim > 2 or budgets.size == 0 or budgets.min() < 1:
        raise BadBudget(
            "budgets must be whole numbers of tokens, at least 1",
            where="budget",
            got=f"{budgets.dtype} array of shape {budgets.shape}",
            expected="one number, or an array [layers, kv_heads]",
        )
    for value in np.unique(budgets):
        policy.parts(int(value))
    return budgets.astype(np.int64).reshape((1,) * (2 - budgets.ndim) + budgets.shape)
