"""What a policy of this package costs, from its own declaration."""

from h2o_theory.costs.policy import PolicyCost
from h2o_theory.policies import Policy

__all__ = ["policy_cost"]


def policy_cost(policy: Policy, budget: tuple[float, ...], *, bits: float = 0.0) -> PolicyCost:
    """A policy as far as costs go, with the entries of a kv_head, for all layers or by layer."""
    if not policy.follows_budget:
        return PolicyCost(policy.asked, bits=bits)
    looks = 0.0 if policy.needs == "positions" else 1.0
    return PolicyCost(policy.asked, tuple(map(float, budget)), bits, looks, 2.0 * looks)
