"""Replay of a trace: which tokens each policy keeps, and what that costs."""

import pandas as pd

from h2o_theory.engine.arguments import chosen_heads, thread_count
from h2o_theory.engine.compiling import compile_policies
from h2o_theory.engine.head import replay_head
from h2o_theory.engine.shared import decide_shared
from h2o_theory.engine.tasks import make_tasks
from h2o_theory.engine.threads import in_threads

__all__ = ["COLUMNS", "replay", "results_table"]

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
    "full_mass",
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
    optimum=True,
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
    policies : str, policy, or list of these
        ``"h2o:recent=0.25,lru"``, ``"module:Class"``, ``"file.py:Class:parameter=1"``, or objects.
    budgets : int, str, dict, array [layers, kv_heads], BudgetMatrix, callable, or a list of these
        ``"10%"`` of T (exact, floored, at least 1) or tokens, the same for all heads; or one
        budget for each kv_head: ``{(layer, kv_head): k}``, an array, a
        :class:`h2o_theory.BudgetMatrix`, or a rule ``rule(trace, prefill)`` that returns one.
    prefill : int
        0 (streaming, the setting of the theory) or the number of prompt rows.
    layers, kv_heads : list of int, optional
        All by default.
    seed : int
        For random policies; each head draws from a stream of its own.
    optimum : bool
        False leaves out the exact optimum: its three columns are then NaN.
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
        (NaN where OPT itself retains nothing, and without the optimum);
        ``topk_bound_ratio`` divides by the per-row top-k bound instead; ``lost_mass_ratio`` is
        (F - J) / (F - J(OPT)), F the mass of the whole rows: ``full_mass``, 1 unless a sink
        without a key takes a share of each row; ``hit_rate`` is the share of accesses under the
        rule ``uniform``
        (own key, or at least 1 / (t + 1) of the full row) that find their key visible, whatever
        rule the policy goes by. ``level`` is ``open``: rows come from the full cache, so how
        eviction changes later queries is not seen.

    Raises
    ------
    UnknownName, BadBudget, OutOfRange, BadArgument
        Before any work is done.

    Notes
    -----
    Rows are generated in blocks of B and shared by all policies and budgets. Per head O(k T) for a
    policy, O(T^2 log T) for the top-k bound; O(G B T) memory. The optimum takes O(K T^2) time up
    to the largest budget K and 24 T^2 bytes; each clairvoyant policy 16 T^2 bytes.
    """
    threads = thread_count(workers)
    heads = chosen_heads(trace, layers, kv_heads)
    tasks = make_tasks(trace, policies, budgets, heads, prefill=prefill, seed=seed, optimum=optimum)
    first = tasks[heads[0]]
    compile_policies([task.policy for task in first], progress)
    by_layer = {layer: own for (layer, _), own in tasks.items()}
    shared = decide_shared(trace, by_layer, threads, progress)
    results = in_threads(
        lambda head: replay_head(trace, *head, tasks[head], shared[head[0]], optimum=optimum),
        heads,
        threads,
        progress,
        "replay",
    )
    return results_table(trace, [record for records in results for record in records])


def results_table(trace, records):
    """Records of :func:`replay_head` with the trace's columns, in the order of COLUMNS."""
    table = pd.DataFrame(records)
    table["trace"], table["trace_id"] = trace.name, trace.trace_id
    table["model"] = trace.spec.model.get("id", "unknown")
    table["tokens"] = trace.tokens
    groups = {layer: trace.layer(layer).group for layer in table["layer"].unique()}
    table["group"] = table["layer"].map(groups)
    return table[[name for name in COLUMNS if name in table]]
