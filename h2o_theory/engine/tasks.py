"""What a replay is to do on each kv_head, checked and resolved before any work starts."""

from h2o_theory.budgets import resolve_budgets
from h2o_theory.engine.arguments import checked_prefill, checked_seed, chosen_heads
from h2o_theory.engine.head import Task
from h2o_theory.engine.run import rows_depend_on_budget
from h2o_theory.engine.tensors import check_tensors
from h2o_theory.errors import BadArgument, BadBudget
from h2o_theory.policies import Policy, parse_policies

__all__ = [
    "check_policies",
    "check_shared_budget",
    "make_tasks",
    "refuse_repeated",
    "resolved_parts",
]


def check_policies(policies):
    """A list of policy objects from names and objects; raises UnknownName or BadArgument."""
    policies = parse_policies(policies)
    for policy in policies:
        if not isinstance(policy, Policy):
            raise BadArgument(
                "this is not a policy",
                where="policies",
                got=repr(policy),
                expected="a name, a shipped policy or an instance of a PlainPolicy subclass",
            )
        policy.require_declared()
        if policy.nested and rows_depend_on_budget(policy):
            raise BadArgument(
                "a nested policy looks at raw rows: renormalised ones depend on the budget",
                where=policy.name,
                hint="Declare rows = 'raw', or nested = False",
            )
    return policies


def make_tasks(trace, policies, budgets, heads, *, prefill=0, seed=0, optimum=True):
    """Every policy at every budget on every kv_head, ``{(layer, kv_head): [Task, ...]}``.

    The lists have equal length and order. Parts are resolved and described once, so that what
    cannot run is refused here.

    Raises
    ------
    UnknownName, BadBudget, OutOfRange, BadArgument
    """
    policies = check_policies(policies)
    prefill, seed = checked_prefill(prefill, trace.tokens), checked_seed(seed)
    if not optimum and any(policy.needs_optimum for policy in policies):
        raise BadArgument(
            "the policy optimum cannot run without the optimum",
            where="policies",
            hint="Leave the policy out, or do not switch the optimum off",
        )
    check_tensors(trace, sorted({layer for layer, _ in heads}), policies)
    resolved = resolve_budgets(trace, budgets, heads, prefill)
    for policy in policies:
        check_shared_budget(policy, resolved)
    tasks = {head: [] for head in heads}
    for head in heads:
        for policy in policies:
            if not policy.follows_budget:
                tasks[head].append(Task(policy, trace.tokens, "100%", prefill, seed))
                continue
            for text, tokens in resolved:
                tasks[head].append(Task(policy, tokens[head], text, prefill, seed))
        refuse_repeated(
            (task.policy.name, task.policy.describe(task.budget), task.budget_text)
            for task in tasks[head]
        )
        for task in tasks[head]:
            task.policy.require(task.context(trace.tokens, *head))
    return tasks


def resolved_parts(
    trace, policies, budgets, *, prefill=0, layers=None, kv_heads=None, seed=0, optimum=True
):
    """What the budgets of a replay come to, before it runs; arguments as :func:`replay`.

    Returns
    -------
    list of dict
        ``policy``, ``budget`` (as asked for), ``budget_tokens``, ``parameters`` (the parts, which
        sum to the budget, and the rest) and ``heads``, the number of kv_heads that have it: one
        entry for every different resolution, in order. Raises what :func:`replay` raises.
    """
    heads = chosen_heads(trace, layers, kv_heads)
    tasks = make_tasks(trace, policies, budgets, heads, prefill=prefill, seed=seed, optimum=optimum)
    counts = {}
    for own in tasks.values():
        for task in own:
            parameters = task.policy.describe(task.budget)
            key = (task.policy.name, task.budget_text, task.budget, parameters)
            counts[key] = counts.get(key, 0) + 1
    names = ("policy", "budget", "budget_tokens", "parameters")
    return [dict(zip(names, key, strict=True)) | {"heads": n} for key, n in counts.items()]


def check_shared_budget(policy, resolved):
    """Heads that share a set share its budget; raises BadBudget if they do not.

    ``resolved`` is a list of (text, ``{(layer, kv_head): tokens}``).
    """
    if policy.scope == "kv_head":
        return
    for text, tokens in resolved:
        seen = {}
        for (layer, _), budget in tokens.items():
            place = f"layer {layer}" if policy.scope == "layer" else "the model"
            if seen.setdefault(place, budget) != budget:
                raise BadBudget(
                    "heads that share a retained set need the same budget",
                    where=policy.name,
                    got=f"{seen[place]} and {budget} in {place}, {text}",
                )


def refuse_repeated(lines):
    """Refuse what a table could not tell apart: (policy, parameters, budget as asked) twice."""
    seen = set()
    for line in lines:
        if line in seen:
            policy, parameters, budget = line
            raise BadArgument(
                "the same policy or budget was given twice",
                where=policy,
                got=f"{parameters} at {budget}",
            )
        seen.add(line)
