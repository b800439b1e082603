"""Admission to a running model: runs that it can follow, checked once before any work is done."""

import dataclasses
from typing import Any

from h2o_theory.budgets import BudgetLike, KvHeads
from h2o_theory.engine.admission import Run, admit, admit_policies
from h2o_theory.engine.tensors import counts_slots, stated_rotary
from h2o_theory.errors import BadArgument
from h2o_theory.policies import TENSORS, Policy, PolicyLike
from h2o_theory.recorder.admission import recordable_modules
from h2o_theory.recorder.models import LoadedModel
from h2o_theory.recorder.provenance import describe_model

__all__ = [
    "POSITIONS",
    "admit_live",
    "admit_live_policies",
    "admit_one",
    "heads_of",
    "network_of",
    "require_context",
    "require_prediction",
    "rotary_of_model",
]

POSITIONS = ("original", "slot")


def admit_live(
    model: Any,
    policies: PolicyLike,
    budgets: BudgetLike,
    *,
    tokens: int,
    prefill: int = 0,
    seed: int = 0,
    positions: str = "original",
) -> list[Run]:
    """Every policy at every budget, on every kv_head of a model that is to read T tokens.

    Parameters
    ----------
    model : transformers.PreTrainedModel or LoadedModel
    policies, budgets
        As for :func:`~h2o_theory.live.run_live`.
    tokens, prefill, seed : int
    positions : {"original", "slot"}
        A policy that asks for slots gets them whatever this says.

    Raises
    ------
    BadArgument, BadBudget, UnknownName, OutOfRange, UnsupportedModel
    """
    if positions not in POSITIONS:
        raise BadArgument(f"positions must be {' or '.join(POSITIONS)}", got=repr(positions))
    model, found = network_of(model), admit_live_policies(policies)
    place = heads_of(model, tokens)
    heads = [(layer, head) for layer in place.layers for head in place.kv_heads(layer)]
    runs = admit(place, found, budgets, heads, prefill=prefill, seed=seed, positions=positions)
    runs = [
        dataclasses.replace(run, positions="slot") if counts_slots(run.policy) else run
        for run in runs
    ]
    # By identity: a user's policy need not be hashable, as an ordinary dataclass is not.
    for run in {(id(run.policy), run.positions): run for run in runs}.values():
        _require_suitable(run.policy, model, run.positions)
    if any(run.positions == "original" for run in runs):
        require_context(model, tokens)
    return runs


def admit_one(model: Any, policy: PolicyLike, budget: BudgetLike, **options: Any) -> Run:
    """:func:`admit_live` of one policy at one budget; raises BadArgument for more."""
    runs = admit_live(model, policy, [budget], **options)
    if len(runs) != 1:
        raise BadArgument(
            "policy and budget must be one each", got=", ".join(run.policy.asked for run in runs)
        )
    return runs[0]


def admit_live_policies(policies: PolicyLike) -> list[Policy]:
    """Policies that a running model can follow, from names and objects.

    Raises
    ------
    UnknownName
        If there is none of that name.
    BadArgument
        For a clairvoyant policy (the rows it reads are yet to be computed), for one whose set
        serves several kv_heads and that looks at queries, keys or values, and for what is no
        policy.
    """
    found = admit_policies(policies)
    for policy in found:
        if policy.needs_future or policy.needs_optimum:
            raise BadArgument(
                "a clairvoyant policy cannot run in a model: it reads rows that are yet to be "
                "computed",
                where=policy.name,
                hint="Replay it on a recorded trace, or let the model follow a schedule chosen "
                "there",
            )
        if set(policy.needs.split()) & set(TENSORS) and policy.scope != "kv_head":
            raise BadArgument(
                "a policy whose set serves several kv_heads can look at rows only",
                where=policy.name,
                got=f"needs {policy.needs}, scope {policy.scope}",
            )
    return found


def _require_suitable(policy: Policy, model: Any, positions: str) -> None:
    """Raise BadArgument or UnsupportedModel for what does not exist in this model's cache.

    That is raw rows where positions count within the cache, as an evicted key has no place there,
    keys that cannot be moved, and queries before a rotary embedding that cannot be taken out.
    """
    if positions == "slot":
        from h2o_theory.live.rotate import key_rotation

        key_rotation(model)
        if policy.rows == "raw":
            raise BadArgument(
                "an evicted key has no slot, so that raw rows do not exist there",
                where=policy.name,
                hint="Use rows=renormalised or positions='original'",
            )
    if "unrotated" in policy.needs.split():
        rotary_of_model(model, 0)


def require_context(
    model: Any, tokens: int, hint: str = "Count positions within the cache (positions='slot')"
) -> None:
    """Raise BadArgument if a text is longer than the positions that a model knows."""
    context = getattr(model.config, "max_position_embeddings", None)
    if context is not None and tokens > context:
        raise BadArgument(
            "tokens must be within the model's context",
            got=f"{tokens} tokens",
            expected=f"at most {context}",
            hint=hint,
        )


def require_prediction(prefill: int, tokens: int) -> None:
    """Raise BadArgument unless a token is left whose prediction counts."""
    if prefill + 1 >= tokens:
        raise BadArgument(
            "prefill must leave a prediction to score",
            got=prefill,
            expected=f"at most {tokens - 2}",
        )


def network_of(model: Any) -> Any:
    """The transformers model itself, of a LoadedModel too."""
    return model.model if isinstance(model, LoadedModel) else model


def heads_of(model: Any, tokens: int) -> KvHeads:
    """The :class:`KvHeads` of a model that is to read T = ``tokens``.

    Raises
    ------
    BadArgument, UnsupportedModel
        As :func:`~h2o_theory.recorder.admission.recordable_modules`.
    """
    model = network_of(model)
    layers, config = tuple(recordable_modules(model)), model.config
    count = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return KvHeads(tokens, layers, 1 if getattr(config, "multi_query", False) else count)


def rotary_of_model(model: Any, head_dim: int) -> tuple[float, int] | None:
    """``(theta, width)`` of a model's rotary embedding; None if it has none.

    Raises
    ------
    BadArgument
        As :func:`h2o_theory.engine.tensors.rotary_of`.
    """
    model = network_of(model)
    return stated_rotary(describe_model(model, "", ""), head_dim, type(model).__name__)
