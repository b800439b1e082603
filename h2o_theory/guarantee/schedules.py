"""The schedule of one policy at one budget, head by head."""

import numpy as np

from h2o_theory.engine.head import Head, Task, shared_schedules
from h2o_theory.engine.run import make_run
from h2o_theory.engine.tensors import check_tensors, head_tensors
from h2o_theory.errors import BadArgument, BadBudget
from h2o_theory.optimum import optimum_at, to_fixed_point
from h2o_theory.policies import parse_budgets, parse_policies

__all__ = ["Schedules"]


class Schedules:
    """Schedules of one policy at one budget on the heads of a trace.

    Parameters
    ----------
    trace : Trace
    policy : str or policy
        One policy that evicts: not ``full``.
    budget : str or int
        One budget.
    layers : list of int
        On which it will be replayed.
    prefill, seed : int

    Attributes
    ----------
    policy : Policy or PlainPolicy
    budget : int
        Resolved against the length of the trace.
    budget_text : str
        As asked for.

    Raises
    ------
    BadArgument, BadBudget, UnknownPolicy
        Several policies or budgets, a policy that never evicts, or one that needs tensors which
        the trace does not hold.
    """

    def __init__(self, trace, policy, budget, layers, prefill, seed):
        self._trace, self._prefill, self._seed = trace, prefill, seed
        self.policy = _only(parse_policies(policy), "policy", BadArgument)
        if not hasattr(self.policy, "rate") or self.policy.kind == "reference":
            raise BadArgument(
                "the guarantee is about policies that evict",
                where="policy",
                got=getattr(self.policy, "name", repr(self.policy)),
                expected="an eviction policy, such as h2o",
            )
        asked = _only(parse_budgets(budget), "budget", BadBudget)
        self.budget_text, self.budget = asked.text, asked.resolve(trace.tokens)
        check_tensors(trace, layers, [self.policy])
        self._shared = {}

    def of(self, layer, kv_head, rows):
        """``evicted_at`` int64 [T] of one head whose rows are given, float64 [G, T, T]."""
        policy, trace = self.policy, self._trace
        if policy.scope != "kv_head":
            return self._of_several(layer)
        mean_rows = rows.mean(axis=0) if policy.kind == "clairvoyant" else None
        if policy.name == "optimum":
            plan = optimum_at(to_fixed_point(mean_rows), self.budget, prefill=self._prefill)
            return plan.evicted_at
        head = Head(layer, kv_head, self._prefill, self._seed)
        tensors = head_tensors(trace, layer, kv_head, [policy])
        run = make_run(policy, head.context(self.budget, trace.tokens, tensors), mean_rows)
        run.advance(np.ascontiguousarray(rows), 0)
        return run.evicted_at

    def _of_several(self, layer):
        """The set that serves all heads of the layer, or of the model, decided once."""
        group = (layer,) if self.policy.scope == "layer" else tuple(self._trace.layers)
        if group not in self._shared:
            task = Task(self.policy, self.budget, self.budget_text)
            self._shared[group] = shared_schedules(
                self._trace, list(group), [task], self._prefill, self._seed
            )[0]
        return self._shared[group]


def _only(found, name, error):
    if len(found) != 1:
        raise error(
            f"one {name} at a time", where=name, got=f"{len(found)}", expected=f"one {name}"
        )
    return found[0]
