"""Arguments that everything which goes over a trace takes, checked before any work starts."""

import os

from h2o_theory.errors import BadArgument, OutOfRange

__all__ = ["checked_prefill", "chosen_heads", "thread_count"]


def chosen_heads(trace, layers=None, kv_heads=None):
    """The (layer, kv_head) pairs to work on; raises OutOfRange or BadArgument for a bad choice."""
    heads = []
    for layer in trace.layers if layers is None else layers:
        available = trace.kv_heads(layer)
        for kv_head in available if kv_heads is None else kv_heads:
            if kv_head not in available:
                raise OutOfRange(
                    "the trace holds no such kv_head",
                    where=f"{trace.name}, layer {layer}",
                    got=kv_head,
                    expected=" or ".join(map(str, available)),
                )
            heads.append((layer, kv_head))
    if not heads:
        raise BadArgument("no layer or kv_head was chosen", where="layers, kv_heads")
    return list(dict.fromkeys(heads))


def checked_prefill(prefill, tokens):
    """``prefill`` if it is a whole number that leaves a row to score; raises OutOfRange if not."""
    if isinstance(prefill, bool) or not hasattr(prefill, "__index__") or not 0 <= prefill < tokens:
        raise OutOfRange(
            "prefill leaves no row to score",
            where="prefill",
            got=prefill,
            expected=f"0 to {tokens - 1}",
        )
    return int(prefill)


def thread_count(workers):
    """``workers``, or the number of cores for None; raises BadArgument if that is no worker."""
    if workers is None:
        return os.cpu_count() or 1
    if isinstance(workers, bool) or not hasattr(workers, "__index__") or workers < 1:
        raise BadArgument("no worker", where="workers", got=workers, expected="at least 1")
    return int(workers)
