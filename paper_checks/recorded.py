"""The recordings that measured claims use, and intervals for what is measured on them."""

import functools
import importlib.resources

import numpy as np

from h2o_theory.trace import open_trace

__all__ = ["bootstrap", "committed_trace", "described", "heads", "interval_text"]

RESAMPLES = 2000


@functools.cache
def committed_trace():
    """The trace that comes with the project."""
    folder = importlib.resources.files("h2o_theory.traces")
    (path,) = (path for path in folder.iterdir() if (path / "manifest.jsonl").is_file())
    return open_trace(path)


def described():
    """Which recording a figure comes from, for the ``effort`` of a finding."""
    trace = committed_trace()
    model, text = trace.spec.model.get("id", "?"), trace.spec.text.get("name", "?")
    return f"{model}, {text}, T = {trace.tokens}, layers {', '.join(map(str, trace.layers))}"


def heads():
    """(layer, kv_head) pairs of the recording."""
    trace = committed_trace()
    return [(layer, head) for layer in trace.layers for head in trace.kv_heads(layer)]


def bootstrap(values, statistic=np.mean, seed=0):
    """Percentile interval of 95 % of a statistic, resampling ``values`` [n] (or rows of [n, m]).

    Heads of one model on one text are not independent samples of models and texts: the interval
    says how much the figure depends on which heads were looked at, and no more.
    """
    values = np.asarray(values)
    rng = np.random.default_rng(seed)
    draws = rng.integers(len(values), size=(RESAMPLES, len(values)))
    return np.quantile([statistic(values[draw]) for draw in draws], (0.025, 0.975))


def interval_text(values, digits=3):
    """``mean [low, high]`` over the values, with the 95 % interval of :func:`bootstrap`."""
    low, high = bootstrap(values)
    return f"{np.mean(values):.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
