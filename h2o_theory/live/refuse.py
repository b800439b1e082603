"""What cannot run inside a model, and why."""

from h2o_theory.engine import budgets as engine_budgets
from h2o_theory.engine.arguments import checked_prefill
from h2o_theory.engine.tasks import check_shared_budget
from h2o_theory.errors import BadArgument
from h2o_theory.live.rotary import rotary_of_model
from h2o_theory.policies import TENSORS, Policy, parse_policies
from h2o_theory.policies.base import checked_parts

__all__ = ["check_budgets", "check_model_suits", "check_policy_runs_live", "resolve_budgets"]


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


def check_model_suits(policy, model, positions):
    """Raise BadArgument if what a policy looks at does not exist in this model's cache.

    That is raw rows where positions count within the cache, as an evicted key has no place there,
    and queries before a rotary embedding that cannot be taken out of them.
    """
    if positions == "slot" and getattr(policy, "rows", "renormalised") == "raw":
        raise BadArgument(
            "an evicted key has no slot, so that raw rows do not exist there",
            where=policy.name,
            hint="Use rows=renormalised or positions='original'",
        )
    if "unrotated" in getattr(policy, "needs", "rows").split():
        rotary_of_model(model, 0)


def resolve_budgets(budgets, heads, prefill):
    """Every budget asked for, in tokens on every kv_head of a model.

    Parameters
    ----------
    budgets : budget, dict, array [layers, kv_heads], BudgetMatrix, callable, or a list of these
        As for :func:`h2o_theory.replay`.
    heads : KvHeads
    prefill : int

    Returns
    -------
    list of (str, dict)
        The budget as asked for and ``{(layer, kv_head): tokens}``.

    Raises
    ------
    BadBudget
        For a budget that cannot be read, is above T or lacks a kv_head, or a rule that reads rows.
    OutOfRange
        If the prompt leaves no row.
    """
    checked_prefill(prefill, heads.tokens)
    every = [(layer, head) for layer in heads.layers for head in heads.kv_heads(layer)]
    return engine_budgets.resolve_budgets(heads, budgets, every, prefill)


def check_budgets(policy, resolved):
    """Raise BadBudget if a resolved budget cannot hold a policy's parts, or splits its sets."""
    for _, tokens in resolved:
        for budget in sorted(set(tokens.values())):
            checked_parts(policy, budget)
    check_shared_budget(policy, resolved)
