"""A sweep over a pretrained model: what it costs, and where the time goes."""

import tempfile
import time
from pathlib import Path
from pydoc_data.topics import topics

import pandas as pd
from threadpoolctl import threadpool_limits

from h2o_theory.engine.compiling import compile_policies
from h2o_theory.engine.head import replay_head
from h2o_theory.engine.rows import HeadRows
from h2o_theory.engine.shared import decide_shared
from h2o_theory.engine.tasks import make_tasks
from h2o_theory.policies import parse_policies
from h2o_theory.trace import open_trace

__all__ = ["run"]

MODEL, TOKENS, LAYERS = "smollm2-135m", 2048, (0, 10, 20)
POLICIES = "recent,sink,random,h2o,h2o:rows=raw,heavy,tova,lru,lfu,lrfu,belady,belady_mass"
BUDGETS = "4%,5%,10%,15%,20%,30%"


def run(trace=None, tokens=TOKENS, progress=None):
    """Replay 12 policies at 6 budgets, all measures but the optimum, on three layers of a model.

    The text is Python's own reference (``pydoc_data``). Work as a sweep's worker does it, in this
    process: times are CPU seconds of one thread.

    Parameters
    ----------
    trace : Trace, optional
        In place of a recording of the model made for this.
    tokens : int
        Length of the recording.

    Returns
    -------
    pandas.DataFrame
        benchmark, size, seconds, baseline, baseline_seconds, ratio, note. The baseline is making
        the rows of the same heads alone, once.
    """
    if trace is not None:
        return _measured(trace, progress)
    with tempfile.TemporaryDirectory() as folder:
        return _measured(_recorded(tokens, Path(folder) / "bench.trace"), progress)


def _recorded(tokens, path):
    from h2o_theory.recorder import load_model, record_text

    text = "\n\n".join(topics[name] for name in sorted(topics))
    recording = record_text(load_model(MODEL), text[: 10 * tokens], tokens, path, layers=LAYERS)
    return open_trace(recording.path)


def _measured(trace, progress):
    layers = [layer for layer in LAYERS if layer in trace.layers] or trace.layers[:3]
    heads = [(layer, head) for layer in layers for head in trace.kv_heads(layer)]
    tasks = make_tasks(trace, POLICIES, BUDGETS, heads, optimum=False)
    compile_policies(parse_policies(POLICIES))
    parts = dict.fromkeys(("rows", "shared", "heads", "policies"), 0.0)
    with threadpool_limits(1, user_api="blas"):
        for done, layer in enumerate(layers, start=1):
            own = [head for head in heads if head[0] == layer]
            parts["rows"] += _spent(lambda own=own: [list(_rows(trace, head)) for head in own])
            began = time.process_time()
            shared = decide_shared(trace, {layer: tasks[own[0]]})[layer]
            parts["shared"] += time.process_time() - began
            began = time.process_time()
            for head in own:
                records = replay_head(trace, *head, tasks[head], shared, optimum=False)
                parts["policies"] += sum(record["seconds"] for record in records)
            parts["heads"] += time.process_time() - began
            if progress:
                progress(done, len(layers), "sweep over a pretrained model")
    whole = parts["shared"] + parts["heads"]
    rest = parts["heads"] - parts["rows"] - parts["policies"]
    cells = len(heads) * len(tasks[heads[0]])
    model = whole / len(layers) * 30 / 60
    shares = {
        "sets shared by a layer": parts["shared"],
        "rows": parts["rows"],
        "policies": parts["policies"],
        "measures and the tables of clairvoyant policies": rest,
    }
    note = ", ".join(f"{name} {part / whole:.0%}" for name, part in shares.items())
    line = {
        "benchmark": f"sweep, 12 policies x 6 budgets, {len(heads)} kv_heads, no optimum",
        "size": trace.tokens,
        "seconds": whole,
        "baseline": "making the rows of these heads once",
        "baseline_seconds": parts["rows"],
        "ratio": parts["rows"] / whole,
        "note": f"{1e3 * whole / cells:.0f} ms a cell; {note}; 30 such layers: {model:.1f} CPU min",
    }
    return pd.DataFrame([line])


def _rows(trace, head):
    """The starts of a head's blocks, each made and dropped."""
    for block in HeadRows(trace, *head):
        yield block.start


def _spent(work):
    began = time.process_time()
    work()
    return time.process_time() - began
