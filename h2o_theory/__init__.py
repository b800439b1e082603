"""The reference toolkit for the theory of KV-cache eviction in large language models.

The public names below load on first use, so that ``import h2o_theory`` is quick and needs
neither torch nor transformers::

    with h2o_theory.record(model, "run.trace"):
        model(**batch)
    trace = h2o_theory.open_trace("run.trace")
    table = h2o_theory.replay(trace, "h2o,recent,sink,optimum", "5%,10%,20%")
"""

import importlib

__version__ = "0.1.0"

_HOMES = {
    "BudgetMatrix": "h2o_theory.budgets",
    "H2OTheoryError": "h2o_theory.errors",
    "LayerSpec": "h2o_theory.trace",
    "PlainPolicy": "h2o_theory.policies",
    "Trace": "h2o_theory.trace",
    "TraceSpec": "h2o_theory.trace",
    "certified_interval": "h2o_theory.engine",
    "certified_optimum": "h2o_theory.engine",
    "import_attention": "h2o_theory.trace",
    "analyze": "h2o_theory.analysis",
    "load_model": "h2o_theory.recorder",
    "load_results": "h2o_theory.report",
    "measure_guarantee": "h2o_theory.guarantee",
    "open_trace": "h2o_theory.trace",
    "ratio_intervals": "h2o_theory.engine",
    "read_budget_matrix": "h2o_theory.budgets",
    "record": "h2o_theory.recorder",
    "record_text": "h2o_theory.recorder",
    "record_texts": "h2o_theory.recorder",
    "replay": "h2o_theory.engine",
    "replay_masks": "h2o_theory.masks",
    "resolved_parts": "h2o_theory.engine",
    "run_sweep": "h2o_theory.sweep",
    "replay_transforms": "h2o_theory.transforms",
    "save_results": "h2o_theory.report",
    "schedules": "h2o_theory.engine",
    "summary_table": "h2o_theory.report",
    "validate": "h2o_theory.trace",
    "write_analysis": "h2o_theory.report",
    "write_report": "h2o_theory.report",
}

_ROOMS = {
    "attention",
    "errors",
    "figures",
    "optimum",
    "policies",
    "submodular",
    "testing",
    "trace",
    "experiments",
    "live",
}
"""Packages reachable as attributes without importing them first."""

__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name):
    if name in _ROOMS:
        return importlib.import_module(f"h2o_theory.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'h2o_theory' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__():
    return sorted({*globals(), *_HOMES, *_ROOMS})
