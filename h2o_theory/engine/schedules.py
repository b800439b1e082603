"""The schedules of one policy, for whoever measures something else than a replay does."""

from h2o_theory.annotations import Head, IntArray, Progress
from h2o_theory.budgets import BudgetLike
from h2o_theory.engine.admission import admit, admit_policies
from h2o_theory.engine.arguments import chosen_heads, thread_count
from h2o_theory.engine.compiling import compile_policies
from h2o_theory.engine.head import head_schedules
from h2o_theory.engine.recorded import Recorded
from h2o_theory.engine.shared import decide_shared
from h2o_theory.engine.threads import in_threads
from h2o_theory.errors import BadArgument
from h2o_theory.policies import PolicyLike

__all__ = ["schedules"]


def schedules(
    trace: Recorded,
    policy: PolicyLike,
    budget: BudgetLike,
    *,
    prefill: int = 0,
    layers: list[int] | None = None,
    kv_heads: list[int] | None = None,
    seed: int = 0,
    workers: int | None = None,
    progress: Progress | None = None,
) -> dict[Head, IntArray]:
    """When each token is evicted: the schedules that :func:`replay` measures, without measures.

    Parameters
    ----------
    trace : Trace
    policy : str or policy
        One, of any kind and scope; arguments otherwise as :func:`replay`.
    budget : int, str, dict, array [layers, kv_heads], BudgetMatrix or callable
        One.

    Returns
    -------
    dict
        ``{(layer, kv_head): evicted_at}`` with ``evicted_at`` int64 [T]: key j is visible to row t
        iff ``j <= t <= evicted_at[j]``; T where j was never evicted.

    Raises
    ------
    UnknownName, BadBudget, OutOfRange, BadArgument
        Before any work is done.

    Notes
    -----
    One pass over the rows in blocks of B, O(G B T) memory; a clairvoyant policy takes 16 T^2 bytes
    a head and ``optimum`` 24 T^2.
    """
    threads = thread_count(workers)
    heads = chosen_heads(trace, layers, kv_heads)
    layers = [layer for layer, _ in heads]
    policies = admit_policies([policy], trace, layers)
    runs = admit(trace, policies, budget, heads, prefill=prefill, seed=seed)
    if len(runs) != 1:
        raise BadArgument("budget must be one budget", got=len(runs))
    compile_policies(policies, progress)
    shared = decide_shared(trace, runs, layers, threads, progress)
    found = in_threads(
        lambda head: head_schedules(trace, head, runs, shared)[0],
        heads,
        threads,
        progress,
        "schedules",
    )
    return dict(zip(heads, found, strict=True))
