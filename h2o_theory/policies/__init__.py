"""Eviction policies: one small file each, a registry, and the tie rule they share."""

from h2o_theory.policies.base import Context, Parts, Policy
from h2o_theory.policies.load import load_policy
from h2o_theory.policies.registry import available, make_policy, parse_policies, register
from h2o_theory.policies.tensors import TENSORS, Tensors

__all__ = [
    "TENSORS",
    "Context",
    "Parts",
    "Policy",
    "Tensors",
    "available",
    "load_policy",
    "make_policy",
    "parse_policies",
    "register",
]
