"""Queries, keys and values of a trace, handed to the policies that look at them."""

import numpy as np

from h2o_theory.attention import rotate
from h2o_theory.errors import BadArgument
from h2o_theory.families import HALVES
from h2o_theory.policies import TENSORS, Tensors

__all__ = [
    "check_tensors",
    "counts_slots",
    "head_tensors",
    "load_tensors",
    "rotary_of",
    "stated_rotary",
]


def check_tensors(trace, layers, policies):
    """Refuse, before any work, a policy that looks at what the trace does not hold.

    Raises
    ------
    BadArgument
        If queries, keys, values or the rotary embedding are missing.
    """
    for policy in policies:
        needed = _needed([policy])
        if needed and policy.scope != "kv_head":
            raise BadArgument(
                "a policy whose set serves several kv_heads can look at rows only",
                where=policy.name,
                got=f"needs {policy.needs}, scope {policy.scope}",
            )
        for layer in layers if needed else ():
            missing = [kind for kind in needed if not _holds(trace, layer, kind)]
            if missing:
                raise BadArgument(
                    f"the policy needs {' and '.join(missing)}, which the trace does not hold",
                    where=f"{policy.name} on {trace.name}, layer {layer}",
                    hint="Record with --store qkv (store='qkv')",
                )
            if "unrotated" in needed and rotary_of(trace, layer) is None and counts_slots(policy):
                raise BadArgument(
                    "slot positions need a rotary embedding",
                    where=f"{policy.name} on {trace.name}",
                    got=f"family {trace.spec.model.get('family')}",
                )


def head_tensors(trace, layer, kv_head, policies):
    """The :class:`Tensors` of a kv_head that any of ``policies`` needs, float64; the rest None."""
    return load_tensors(trace, layer, kv_head, _needed(policies))


def load_tensors(trace, layer, kv_head, kinds):
    """The :class:`Tensors` of a kv_head of the given kinds, float64; the rest None."""
    arrays, rotary = {}, None
    for kind in {"queries" if kind == "unrotated" else kind for kind in kinds}:
        arrays[kind] = np.asarray(getattr(trace, kind)(layer, kv_head), dtype=np.float64)
    if "unrotated" in kinds:
        rotary, arrays["unrotated"] = rotary_of(trace, layer), arrays["queries"]
        if rotary:
            arrays["unrotated"] = rotate(arrays["queries"], -np.arange(trace.tokens), *rotary)
    return Tensors(**arrays, scaling=trace.layer(layer).scaling, rotary=rotary)


def counts_slots(policy):
    """Whether the policy's cache counts positions within itself."""
    return policy.positions == "slot"


def rotary_of(trace, layer):
    """``(theta, width)`` of the rotary embedding the trace states; None if it states none.

    Raises
    ------
    BadArgument
        If the embedding is laid out otherwise or its angles are not theta's powers.
    """
    return stated_rotary(trace.spec.model, trace.layer(layer).head_dim, trace.name)


def stated_rotary(model, head_dim, where):
    """:func:`rotary_of` from what is said of a model: its ``family`` and ``rope``."""
    stated = model.get("rope") or {}
    if not stated:
        return None
    theta = stated.get("rope_theta", stated.get("rotary_emb_base"))
    kind = stated.get("rope_type", "default")
    known = model.get("family") in HALVES and isinstance(theta, int | float)
    if not known or kind != "default" or stated.get("rope_scaling"):
        raise BadArgument(
            "this rotary embedding cannot be taken out of the queries",
            where=where,
            got=f"family {model.get('family')}, {stated}",
            expected=f"rope_type default with a rope_theta in one of {', '.join(sorted(HALVES))}",
        )
    share = stated.get("partial_rotary_factor", stated.get("rotary_pct", 1.0))
    return float(theta), int(head_dim * share)


def _needed(policies):
    named = {word for policy in policies for word in policy.needs.split()}
    if any(map(counts_slots, policies)):
        named |= {"unrotated", "keys", "values"}
    return [kind for kind in TENSORS if kind in named]


def _holds(trace, layer, kind):
    if kind == "values":
        return trace.has_values(layer)
    return trace.spec.content != "attention"
