"""Replay of a trace: which tokens each policy keeps, and what that costs."""

from typing import Any

import pandas as pd

from h2o_theory.annotations import Progress
from h2o_theory.budgets import BudgetLike
from h2o_theory.engine.admission import admit, admit_policies
from h2o_theory.engine.arguments import chosen_heads, thread_count
from h2o_theory.engine.columns import POLICY_COLUMNS, with_whole_parts
from h2o_theory.engine.compiling import compile_policies
from h2o_theory.engine.head import replay_head
from h2o_theory.engine.recorded import Recorded
from h2o_theory.engine.shared import decide_shared
from h2o_theory.engine.threads import in_threads
from h2o_theory.policies import PolicyLike

__all__ = ["COLUMNS", "replay", "results_table"]

COLUMNS = (
    "trace",
    "trace_id",
    "model",
    "tokens",
    "layer",
    "kv_head",
    "group",
    *POLICY_COLUMNS,
    "budget",
    "budget_tokens",
    "prefill",
    "seed",
    "loop",
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
    trace: Recorded,
    policies: PolicyLike,
    budgets: BudgetLike,
    *,
    prefill: int = 0,
    layers: list[int] | None = None,
    kv_heads: list[int] | None = None,
    seed: int = 0,
    optimum: bool = True,
    workers: int | None = None,
    progress: Progress | None = None,
) -> pd.DataFrame:
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
        rule the policy goes by. ``loop`` is ``open``: rows come from the full cache, so how
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
    layers = [layer for layer, _ in heads]
    admitted = admit_policies(policies, trace, layers, optimum=optimum)
    runs = admit(trace, admitted, budgets, heads, prefill=prefill, seed=seed)
    compile_policies(admitted, progress)
    shared = decide_shared(trace, runs, layers, threads, progress)
    results = in_threads(
        lambda head: replay_head(trace, head, runs, shared, optimum=optimum),
        heads,
        threads,
        progress,
        "replay",
    )
    return results_table(trace, [line for lines in results for line in lines])


def results_table(trace: Any, lines: list[dict[str, Any]]) -> pd.DataFrame:
    """Lines of :func:`replay_head` with the trace's columns, in the order of COLUMNS."""
    table = with_whole_parts(pd.DataFrame(lines))
    table["trace"], table["trace_id"] = trace.name, trace.trace_id
    table["model"] = trace.spec.model.get("id", "unknown")
    table["tokens"] = trace.tokens
    groups = {layer: trace.layer(layer).group for layer in table["layer"].unique()}
    table["group"] = table["layer"].map(groups)
    return table[[name for name in COLUMNS if name in table]]
