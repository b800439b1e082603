"""What cannot run inside a model, and why."""

from h2o_theory import budgets as engine_budgets
from h2o_theory.engine.arguments import checked_prefill
from h2o_theory.engine.tasks import check_policies, check_shared_budget
from h2o_theory.engine.tensors import counts_slots
from h2o_theory.errors import BadArgument
from h2o_theory.live.rotary import rotary_of_model
from h2o_theory.policies import TENSORS
from h2o_theory.policies.parts import resolve_parts
from h2o_theory.recorder.models import LoadedModel

__all__ = [
    "check_budgets",
    "check_context",
    "check_model_suits",
    "check_policy_runs_live",
    "resolve_budgets",
]


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
    UnknownName
        If there is none of that name.
    BadArgument
        For a clairvoyant policy (the rows it reads are yet to be computed), for one whose set
        serves several kv_heads and that looks at queries, keys or values, and for what is no
        policy.
    """
    policies = check_policies(policy)
    if len(policies) != 1:
        raise BadArgument("one policy at a time", where="policy", got=f"{len(policies)} policies")
    (policy,) = policies
    if policy.needs_future or policy.needs_optimum:
        raise BadArgument(
            "a clairvoyant policy cannot run in a model: it reads rows that are yet to be computed",
            where=policy.name,
            hint="Replay it on a recorded trace, or let the model follow a schedule chosen there",
        )
    tensors = set(policy.needs.split()) & set(TENSORS)
    if tensors and policy.scope != "kv_head":
        raise BadArgument(
            "a policy whose set serves several kv_heads can look at rows only",
            where=policy.name,
            got=f"needs {policy.needs}, scope {policy.scope}",
        )
    return policy


def check_model_suits(policy, model, positions):
    """Refuse a policy that looks at what does not exist in this model's cache.

    Raises
    ------
    BadArgument
        For raw rows where positions count within the cache, as an evicted key has no place there,
        and for queries before a rotary embedding that cannot be taken out of them.
    UnsupportedModel
        If positions count within the cache and the model's keys cannot be moved.
    """
    slot = positions == "slot" or counts_slots(policy)
    if slot:
        from h2o_theory.live.rotate import key_rotation

        key_rotation(model.model if isinstance(model, LoadedModel) else model)
    if slot and policy.rows == "raw":
        raise BadArgument(
            "an evicted key has no slot, so that raw rows do not exist there",
            where=policy.name,
            hint="Use rows=renormalised or positions='original'",
        )
    if "unrotated" in policy.needs.split():
        rotary_of_model(model, 0)


def check_context(model, tokens, hint="Count positions within the cache (positions='slot')"):
    """Raise BadArgument if a text is longer than the positions that a model knows.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    tokens : int
    hint : str
    """
    context = getattr(model.config, "max_position_embeddings", None)
    if context is not None and tokens > context:
        raise BadArgument(
            "more tokens than the model's context",
            where="tokens",
            got=tokens,
            expected=f"at most {context}",
            hint=hint,
        )


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
            resolve_parts(policy, budget)
    check_shared_budget(policy, resolved)
