"""The schedules of one policy, for whoever measures something else than a replay does."""

from h2o_theory.engine.arguments import chosen_heads, thread_count
from h2o_theory.engine.compiling import compile_policies
from h2o_theory.engine.head import head_schedules
from h2o_theory.engine.shared import decide_shared
from h2o_theory.engine.tasks import make_tasks
from h2o_theory.engine.threads import in_threads
from h2o_theory.errors import BadArgument

__all__ = ["schedules"]


def schedules(
    trace,
    policy,
    budget,
    *,
    prefill=0,
    layers=None,
    kv_heads=None,
    seed=0,
    workers=None,
    progress=None,
):
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
    tasks = make_tasks(trace, [policy], budget, heads, prefill=prefill, seed=seed)
    first = tasks[heads[0]]
    if len(first) != 1:
        raise BadArgument("one budget is needed", where="budget", got=len(first), expected=1)
    compile_policies([first[0].policy], progress)
    by_layer = {layer: own for (layer, _), own in tasks.items()}
    shared = decide_shared(trace, by_layer, threads, progress)
    found = in_threads(
        lambda head: head_schedules(trace, *head, tasks[head], shared[head[0]])[0],
        heads,
        threads,
        progress,
        "schedules",
    )
    return dict(zip(heads, found, strict=True))
