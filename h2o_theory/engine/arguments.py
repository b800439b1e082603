"""Arguments that everything which goes over a trace takes, checked before any work starts."""

import os

from h2o_theory.errors import BadArgument, OutOfRange

__all__ = ["to_prefill", "to_seed", "chosen_heads", "thread_count"]


def chosen_heads(trace, layers=None, kv_heads=None):
    """The (layer, kv_head) pairs to work on; raises OutOfRange or BadArgument for a bad choice."""
    _require_list(layers, "layers")
    _require_list(kv_heads, "kv_heads")
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


def to_prefill(prefill, tokens):
    """``prefill`` if it is a whole number that leaves a row to score; raises OutOfRange if not."""
    if not _is_whole(prefill) or not 0 <= prefill < tokens:
        raise OutOfRange(
            "prefill leaves no row to score",
            where="prefill",
            got=prefill,
            expected=f"0 to {tokens - 1}",
        )
    return int(prefill)


def to_seed(seed):
    """``seed`` if it is a whole number of at least 0; raises BadArgument if not."""
    if not _is_whole(seed) or seed < 0:
        raise BadArgument(
            "no seed", where="seed", got=repr(seed), expected="a whole number of at least 0"
        )
    return int(seed)


def thread_count(workers):
    """``workers``, or the number of cores for None; raises BadArgument if that is no worker."""
    if workers is None:
        return os.cpu_count() or 1
    if not _is_whole(workers) or workers < 1:
        raise BadArgument("no worker", where="workers", got=workers, expected="at least 1")
    return int(workers)


def _is_whole(number):
    """Whether it is a whole number of any library's."""
    return hasattr(number, "__index__") and not isinstance(number, bool)


def _require_list(chosen, name):
    if chosen is not None and (isinstance(chosen, str) or not hasattr(chosen, "__iter__")):
        raise BadArgument(
            "a list of numbers is needed", where=name, got=repr(chosen), expected="such as [0, 2]"
        )
