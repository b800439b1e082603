"""What a policy of this package costs, from its own declaration."""

from h2o_theory.costs.policy import PolicyCost
from h2o_theory.policies import Policy

__all__ = ["policy_cost"]


def policy_cost(policy: Policy, entries: float, *, bits: float = 0.0) -> PolicyCost:
    """A policy holding so many entries of a kv_head, as far as costs go."""
    if policy.name == "full":
        return PolicyCost("full", bits=bits)
    looks = 0.0 if policy.needs == "positions" else 1.0
    return PolicyCost(policy.name, (float(entries),), bits, looks, 2.0 * looks)
