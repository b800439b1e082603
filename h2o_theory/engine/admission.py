"""Admission: what is asked for becomes runs, checked and resolved once, before any work starts.

Everything behind this door takes :class:`Run` and checks nothing again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from h2o_theory.annotations import Head
from h2o_theory.budgets import resolve_budgets
from h2o_theory.engine.arguments import chosen_heads, to_prefill, to_seed
from h2o_theory.engine.columns import policy_columns
from h2o_theory.engine.run import rows_depend_on_budget
from h2o_theory.engine.tensors import require_tensors
from h2o_theory.errors import BadArgument, BadBudget
from h2o_theory.policies import Context, KnownSchedule, Policy, Tensors, parse_policies

__all__ = ["Run", "admit", "admit_policies", "budgets_of_runs", "resolved_parts"]


@dataclass(frozen=True, eq=False)
class Run:
    """One policy at one budget on kv_heads of a trace or a model; every part can be run.

    Attributes
    ----------
    policy : Policy
    budget : str
        As asked for.
    tokens : dict of (layer, kv_head) to int
        What the budget comes to on each kv_head.
    length : int
        T.
    prefill, seed : int
    positions : {"original", "slot"}
        Where a running model counts positions.
    """

    policy: Policy
    budget: str
    tokens: Mapping[Head, int]
    length: int
    prefill: int = 0
    seed: int = 0
    positions: str = "original"

    def context(self, layer: int, kv_head: int, tensors: Tensors | None = None) -> Context:
        """What the policy is told on that kv_head."""
        budget = self.tokens[layer, kv_head]
        return Context(budget, self.length, self.prefill, layer, kv_head, self.seed, tensors)

    def columns(self, *heads: Head) -> dict[str, Any]:
        """What a table says of the run on these kv_heads, by default on all of them.

        ``budget_tokens`` is the mean over them, rounded; parts that differ among them are missing.
        """
        budgets = [self.tokens[head] for head in heads or self.tokens]
        return {
            **policy_columns(self.policy, budgets),
            "budget": self.budget,
            "budget_tokens": round(sum(budgets) / len(budgets)),
            "prefill": self.prefill,
            "seed": self.seed,
        }


def admit(
    place: Any,
    policies: Any,
    budgets: Any,
    heads: list[Head],
    *,
    prefill: int = 0,
    seed: int = 0,
    positions: str = "original",
) -> list[Run]:
    """Every policy at every budget, resolved on every kv_head.

    Parameters
    ----------
    place : Trace or KvHeads
        What has the kv_heads: a recorded trace, or a model that is yet to run.
    policies : list of Policy
        Of :func:`admit_policies`.
    budgets : budget or list of these
        As for :func:`h2o_theory.replay`. A policy that follows none of them runs once, at T.
    heads : list of (layer, kv_head)
    prefill, seed : int
    positions : str

    Raises
    ------
    BadBudget, OutOfRange, BadArgument
        For what cannot run, and for what no table could tell apart.
    """
    prefill, seed = to_prefill(prefill, place.tokens), to_seed(seed)
    resolved = resolve_budgets(place, budgets, heads, prefill)
    whole = [("100%", dict.fromkeys(heads, place.tokens))]
    runs = [
        Run(policy, text, tokens, place.tokens, prefill, seed, positions)
        for policy in policies
        for text, tokens in (resolved if policy.follows_budget else whole)
    ]
    _require_distinct(runs)
    for run in runs:
        _require_one_budget_a_set(run)
        # Equal budgets divide alike, wherever they are; a known schedule is another on every head.
        first = heads if isinstance(run.policy, KnownSchedule) else _first_of_each(run.tokens)
        for head in first:
            run.policy.require(run.context(*head))
    return runs


def admit_policies(
    policies: Any, trace: Any = None, layers: Iterable[int] = (), *, optimum: bool = True
) -> list[Policy]:
    """Policy objects from names and objects.

    Parameters
    ----------
    policies : str, Policy, or list of these
    trace : Trace, optional
        Whose ``layers`` must hold what the policies look at.
    optimum : bool
        Whether the exact optimum will be there.

    Raises
    ------
    UnknownName, BadArgument
    """
    found = parse_policies(policies)
    for policy in found:
        if not isinstance(policy, Policy):
            raise BadArgument(
                "policies must be names, shipped policies or instances of PlainPolicy subclasses",
                got=repr(policy),
            )
        policy.require_declared()
        if policy.nested and rows_depend_on_budget(policy):
            raise BadArgument(
                "a nested policy must look at raw rows: renormalised ones depend on the budget",
                where=policy.name,
                hint="Declare rows = 'raw', or nested = False",
            )
        if policy.needs_optimum and not optimum:
            raise BadArgument(
                "the policy optimum cannot run without the optimum",
                where="policies",
                hint="Leave the policy out, or do not switch the optimum off",
            )
        if trace is not None:
            require_tensors(trace, sorted(set(layers)), policy)
    return found


def resolved_parts(
    trace: Any,
    policies: Any,
    budgets: Any,
    *,
    prefill: int = 0,
    layers: list[int] | None = None,
    kv_heads: list[int] | None = None,
    seed: int = 0,
    optimum: bool = True,
) -> list[dict[str, Any]]:
    """What the budgets of a replay come to, before it runs; arguments as :func:`replay`.

    Returns
    -------
    list of dict
        The columns of a policy (its parts sum to the budget), ``budget`` (as asked for),
        ``budget_tokens`` and ``heads``, the number of kv_heads that have it: one entry for every
        different resolution, in order. Raises what :func:`replay` raises.
    """
    heads = chosen_heads(trace, layers, kv_heads)
    policies = admit_policies(policies, trace, {layer for layer, _ in heads}, optimum=optimum)
    runs = admit(trace, policies, budgets, heads, prefill=prefill, seed=seed)
    return budgets_of_runs(runs)


def budgets_of_runs(runs: list[Run]) -> list[dict[str, Any]]:
    """The lines of :func:`resolved_parts`."""
    lines = []
    for run in runs:
        for head in _first_of_each(run.tokens):
            same = sum(tokens == run.tokens[head] for tokens in run.tokens.values())
            lines.append(run.columns(head) | {"heads": same})
    return lines


def _first_of_each(tokens: Mapping[Head, int]) -> list[Head]:
    """For every different budget the first kv_head that has it."""
    first: dict[int, Head] = {}
    for head, budget in tokens.items():
        first.setdefault(budget, head)
    return list(first.values())


def _require_one_budget_a_set(run: Run) -> None:
    """Raise BadBudget unless heads that share a retained set share its budget."""
    if run.policy.scope == "kv_head":
        return
    seen: dict[str, int] = {}
    for (layer, _), budget in run.tokens.items():
        place = f"layer {layer}" if run.policy.scope == "layer" else "the model"
        if seen.setdefault(place, budget) != budget:
            raise BadBudget(
                "heads that share a retained set need the same budget",
                where=run.policy.name,
                got=f"{seen[place]} and {budget} in {place}, {run.budget}",
            )


def _require_distinct(runs: list[Run]) -> None:
    """Raise BadArgument for what a table could not tell apart: policy and budget, both as asked."""
    seen: dict[tuple[str, str], Policy] = {}
    for run in runs:
        key = run.policy.asked, run.budget
        if key not in seen:
            seen[key] = run.policy
            continue
        other = seen[key]
        if type(other) is not type(run.policy):
            raise BadArgument(
                "two different policies go by one name",
                where=run.policy.asked,
                got=f"{type(other).__qualname__} and {type(run.policy).__qualname__}",
                hint="Give each class a name of its own",
            )
        raise BadArgument(
            "the same policy or budget was given twice", got=f"{run.policy.asked} at {run.budget}"
        )
