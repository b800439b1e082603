"""What cannot run inside a model, and why."""

from h2o_theory.engine import budgets as engine_budgets
from h2o_theory.engine.arguments import checked_prefill
from h2o_theory.engine.tasks import check_shared_budget
from h2o_theory.errors import BadArgument
from h2o_theory.policies import TENSORS, Policy, parse_policies
from h2o_theory.policies.base import checked_parts

__all__ = ["check_budgets", "check_policy_runs_live", "resolve_budgets"]


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
        For a clairvoyant policy (the rows it reads are yet to be computed), for one that reads
        raw rows (a softmax over all past keys, some of which are gone), for one whose set serves
        all layers or that looks at queries before their rotary embedding, and for what is no
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
    if policy.scope == "model":
        raise BadArgument(
            "a set shared by all layers cannot be chosen in a model: the first layer would have to "
            "know the rows of the last",
            where=policy.name,
            hint="Replay it on a recorded trace",
        )
    tensors = set(getattr(policy, "needs", "rows").split()) & set(TENSORS)
    if tensors and policy.scope != "kv_head":
        raise BadArgument(
            "a policy whose set serves several kv_heads can look at rows only",
            where=policy.name,
            got=f"needs {policy.needs}, scope {policy.scope}",
        )
    if "unrotated" in tensors:
        raise BadArgument(
            "the model hands over queries after their rotary embedding only",
            where=policy.name,
            hint="Replay it on a recorded trace",
        )
    if getattr(policy, "rows", "renormalised") == "raw":
        raise BadArgument(
            "raw rows do not exist in a model that evicts: they weigh every past key, and the "
            "evicted ones are gone",
            where=policy.name,
            hint=f"Use {policy.name}:rows=renormalised" if "rows" in vars(policy) else "Replay it",
        )
    return policy


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
