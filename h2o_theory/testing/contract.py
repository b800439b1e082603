"""The contract of a policy: what no policy may do, checked on random, tied and tiny instances."""

from dataclasses import dataclass

import numpy as np

from h2o_theory.policies import make_policy
from h2o_theory.testing.checks import CHECKS
from h2o_theory.testing.instances import random_rows, schedule_of

__all__ = ["ContractReport", "check_policy", "frozen_since"]


@dataclass(frozen=True)
class ContractReport:
    """What :func:`check_policy` found; a broken contract raises instead.

    Attributes
    ----------
    policy : str
    checks : tuple of str
        Names of the checks that passed.
    frozen_since : int or None
        Step after which the retained set no longer changed although the cache was full, on a
        random instance of 48 tokens with 8 entries; None if it kept changing. A warning sign, not
        a fault: a policy that always evicts the newcomer keeps its first tokens for ever.
    """

    policy: str
    checks: tuple
    frozen_since: int | None


def check_policy(policy, seed=0):
    """Run the contract on a policy.

    An online policy does not see later rows, queries, keys or values, nor evicted columns.
    Exactly one entry leaves whenever the cache is full, none before; the newcomer is visible;
    T = 1, k = 1 and rows full of ties work; k = T keeps everything. (That nothing returns is the
    form of a schedule: one step of eviction per token.) The same seed gives the same schedule.
    Replaying in blocks, other heads before or after, and the order of the query heads in a group
    change nothing. Raw and renormalised rows lead to the same first victim. One pass over all
    budgets, where the policy claims to allow it, equals direct simulation. Retained mass <= exact
    optimum <= per-row top-k bound.

    Parameters
    ----------
    policy : Policy, PlainPolicy or str
    seed : int
        For the random instances.

    Returns
    -------
    ContractReport

    Raises
    ------
    ContractBroken
        With the check, the instance and the first step at which it fails.
    """
    policy = make_policy(policy) if isinstance(policy, str) else policy
    rng = np.random.default_rng(seed)
    for check in CHECKS:
        check(policy, rng)
    schedule = schedule_of(policy, random_rows(rng, 2, 48), 8)
    names = tuple(check.__name__.strip("_").replace("_", " ") for check in CHECKS)
    return ContractReport(policy.name, names, frozen_since(schedule, 8))


def frozen_since(schedule, budget):
    """First step from which every victim is the newcomer of its step; None if there is none.

    Judged over at least ``budget`` steps before the last row.
    """
    tokens = len(schedule)
    newcomer = schedule == np.arange(tokens)
    changed = np.flatnonzero(~newcomer & (schedule < tokens))
    last = int(schedule[changed].max(initial=budget - 1))
    return last + 1 if last + 1 <= tokens - budget and newcomer[last + 1 :].all() else None
