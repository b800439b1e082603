"""Replay of a trace: which tokens each policy keeps, and what that costs."""

import functools
import os

import pandas as pd

from h2o_theory.engine.advance import compiled_advance
from h2o_theory.engine.head import Head, Task, replay_head, shared_schedules
from h2o_theory.engine.stack import compiled_stack_pass
from h2o_theory.engine.tensors import check_tensors
from h2o_theory.engine.threads import in_threads
from h2o_theory.errors import BadArgument, OutOfRange
from h2o_theory.policies import Policy, parse_budgets, parse_policies
from h2o_theory.policies.base import resolved_parts

__all__ = ["COLUMNS", "replay"]

COLUMNS = (
    "trace",
    "trace_id",
    "model",
    "tokens",
    "layer",
    "kv_head",
    "group",
    "policy",
    "parameters",
    "budget",
    "budget_tokens",
    "prefill",
    "seed",
    "level",
    "n_rows",
    "n_rows_full",
    "retained_mass",
    "retained_mass_full",
    "optimum_mass",
    "topk_mass",
    "approximation_ratio",
    "lost_mass_ratio",
    "topk_bound_ratio",
    "output_error",
    "kl",
    "hit_rate",
    "realised_budget_max",
    "realised_budget_mean",
    "victim_age_mean",
    "sparsity_causal",
    "sparsity_square",
    "seconds",
)
"""The columns of the results table, in order."""


def replay(
    trace,
    policies,
    budgets,
    *,
    prefill=0,
    layers=None,
    kv_heads=None,
    seed=0,
    workers=None,
    progress=None,
):
    r"""Replay recorded rows under eviction policies and compare each with the exact optimum.

    At step t the token t joins the visible set S_t, its query attends over S_t, the policy sees
    the row restricted to S_t, and if :math:`|S_t| = k` one entry leaves for good. The budget k
    counts every entry a query sees, its own included. With ``prefill=p`` the first p rows see
    everything, are not scored, and one cut to k - 1 entries follows them.

    Parameters
    ----------
    trace : Trace
        From :func:`h2o_theory.open_trace` or :meth:`h2o_theory.Trace.from_attention`.
    policies : str or list
        ``"h2o,recent,lru"``, ``"h2o:recent=0.25,rows=raw"``, policy objects, or instances of
        your own :class:`h2o_theory.PlainPolicy`.
    budgets : str, int or list
        ``"5%,10%,64"``: shares of T (exact, floored, at least 1) or tokens.
    prefill : int
        0 (streaming, the setting of the theory) or the number of prompt rows.
    layers, kv_heads : list of int, optional
        All by default.
    seed : int
        For random policies; each head draws from a stream of its own.
    workers : int, optional
        Threads; the number of cores by default. Results do not depend on it.
    progress : callable (done, total, label), optional
        Called from this thread after each head.

    Returns
    -------
    pandas.DataFrame
        One row per layer, kv_head, policy and budget; columns :data:`COLUMNS`. Masses are means
        per scored row. ``approximation_ratio`` is J(policy) / J(OPT), both exact integers in
        units of 2^-36, OPT the best evict-only schedule at the same budget, prefill and rows
        (NaN where OPT itself retains nothing);
        ``topk_bound_ratio`` divides by the per-row top-k bound instead; ``lost_mass_ratio`` is
        (n - J) / (n - J(OPT)). ``level`` is ``open``: rows come from the full cache, so how
        eviction changes later queries is not seen.

    Raises
    ------
    UnknownPolicy, BadBudget, OutOfRange, BadArgument
        Before any work is done.

    Notes
    -----
    Per head O(K T^2) for the optimum up to the largest budget K, O(k T) per policy, 16 T^2 bytes
    plus the solver's 8 T^2; rows are generated in blocks and shared by all policies and budgets.
    """
    policies = _checked_policies(policies)
    if not 0 <= prefill < trace.tokens:
        raise OutOfRange(
            "prefill leaves no row to score",
            where="prefill",
            got=prefill,
            expected=f"0 to {trace.tokens - 1}",
        )
    if workers is not None and workers < 1:
        raise BadArgument("no worker", where="workers", got=workers, expected="at least 1")
    tasks = _tasks(policies, budgets, trace.tokens)
    layers = trace.layers if layers is None else tuple(layers)
    heads = [
        Head(layer, kv_head, prefill, seed)
        for layer in layers
        for kv_head in _kv_heads(trace, layer, kv_heads)
    ]
    if not heads:
        raise BadArgument("no layer or kv_head was chosen", where="layers, kv_heads")
    check_tensors(trace, layers, policies)
    for task in tasks:
        resolved_parts(task.policy, task.budget)
    _compile(policies, progress)

    threads = workers or os.cpu_count() or 1
    schedules = _shared(trace, layers, tasks, prefill, seed, threads, progress)
    results = in_threads(
        lambda head: replay_head(trace, head, tasks, schedules[head.layer]),
        heads,
        threads,
        progress,
        "replay",
    )
    table = pd.DataFrame([record for records in results for record in records])
    table["trace"], table["trace_id"] = trace.name, trace.trace_id
    table["model"] = trace.spec.model.get("id", "unknown")
    table["tokens"] = trace.tokens
    table["group"] = table["layer"].map({layer: trace.layer(layer).group for layer in layers})
    return table[list(COLUMNS)]


def _shared(trace, layers, tasks, prefill, seed, threads, progress):
    """Schedules of the sets that heads share, ``{layer: {index of task: schedule}}``.

    A set of the whole model is decided by all recorded layers, whichever were chosen.
    """
    schedules = {layer: {} for layer in layers}
    for scope, groups in (("layer", [[layer] for layer in layers]), ("model", [trace.layers])):
        chosen = [i for i, task in enumerate(tasks) if task.policy.scope == scope]
        if not chosen:
            continue
        decide = functools.partial(
            shared_schedules, trace, tasks=[tasks[i] for i in chosen], prefill=prefill, seed=seed
        )
        found = in_threads(decide, groups, threads, progress, f"sets shared by the {scope}")
        for group, decided in zip(groups, found, strict=True):
            for layer in set(group) & set(layers):
                schedules[layer].update(zip(chosen, decided, strict=True))
    return schedules


def _checked_policies(policies):
    policies = parse_policies(policies)
    for policy in policies:
        if not isinstance(policy, Policy) and not hasattr(policy, "rate"):
            raise BadArgument(
                "this is not a policy",
                where="policies",
                got=repr(policy),
                expected="a name, a shipped policy or an instance of a PlainPolicy subclass",
            )
    return policies


def _tasks(policies, budgets, tokens):
    """Every policy at every budget, resolved and described once so that errors come first."""
    tasks = []
    resolved = [(budget.text, budget.resolve(tokens)) for budget in parse_budgets(budgets)]
    for policy in policies:
        if policy.name == "full":
            tasks.append(Task(policy, tokens, "100%"))
            continue
        tasks += [Task(policy, budget, text) for text, budget in resolved]
    seen = set()
    for task in tasks:
        key = (task.policy.name, task.policy.describe(task.budget), task.budget_text)
        if key in seen:
            raise BadArgument(
                "the same policy or budget was given twice",
                where=task.policy.name,
                got=f"{key[1]} at {task.budget_text}",
            )
        seen.add(key)
    return tasks


def _compile(policies, progress):
    """Compile before the threads start, so that the wait is shown for what it is."""
    classes = sorted({type(p) for p in policies if isinstance(p, Policy)}, key=lambda c: c.name)
    for done, policy_class in enumerate(classes, start=1):
        if policy_class.name not in ("full", "optimum"):
            compiled_advance(policy_class)
            if any(p.nested for p in policies if isinstance(p, policy_class)):
                compiled_stack_pass(policy_class)
        if progress:
            progress(done, len(classes), "loading policies (compiled on the first run)")


def _kv_heads(trace, layer, kv_heads):
    available = trace.kv_heads(layer)
    for kv_head in kv_heads or ():
        if kv_head not in available:
            raise OutOfRange(
                "the trace holds no such kv_head",
                where=f"{trace.name}, layer {layer}",
                got=kv_head,
                expected=" or ".join(map(str, available)),
            )
    return available if kv_heads is None else kv_heads
