"""Eviction policies: one small file each, a registry, and the tie rule they share."""

from h2o_theory.policies.base import CompiledPolicy, Context, Policy
from h2o_theory.policies.known import KnownSchedule
from h2o_theory.policies.parts import Parts
from h2o_theory.policies.plain import PlainPolicy
from h2o_theory.policies.registry import available, make_policy, parse_policies, register
from h2o_theory.policies.tensors import TENSORS, Tensors

__all__ = [
    "TENSORS",
    "CompiledPolicy",
    "Context",
    "KnownSchedule",
    "Parts",
    "PlainPolicy",
    "Policy",
    "Tensors",
    "available",
    "make_policy",
    "parse_policies",
    "register",
]
