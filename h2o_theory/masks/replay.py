"""Replay of masks: what each pattern retains at a budget, and how much of it comes back."""

import numpy as np
import pandas as pd

from h2o_theory.attention import renormalise
from h2o_theory.attention.measures import lost_mass_divergences, relative_errors
from h2o_theory.budgets import resolve_even
from h2o_theory.engine.arguments import chosen_heads, thread_count, to_prefill
from h2o_theory.engine.measure import HeadTotals
from h2o_theory.engine.rows import HeadRows
from h2o_theory.engine.threads import in_threads
from h2o_theory.errors import BadArgument
from h2o_theory.masks.registry import parse_masks
from h2o_theory.masks.run import MaskRun
from h2o_theory.optimum import UNITS
from h2o_theory.policies.base import parameters_text

__all__ = ["MASK_COLUMNS", "replay_masks"]

MASK_COLUMNS = (
    "trace",
    "trace_id",
    "model",
    "tokens",
    "layer",
    "kv_head",
    "mask",
    "mask_name",
    "parameters",
    "budget",
    "budget_tokens",
    "prefill",
    "n_rows",
    "retained_mass",
    "topk_mass",
    "topk_bound_ratio",
    "output_error",
    "kl",
    "keys_seen_mean",
    "keys_seen_max",
    "readmitted",
)
"""The columns of the table of masks, in order."""


def replay_masks(
    trace,
    masks,
    budgets,
    *,
    prefill=0,
    layers=None,
    kv_heads=None,
    workers=None,
    progress=None,
):
    """Measure sparse attention patterns on a trace, at budgets that count as those of the caches.

    Row t of each query head is restricted to the keys the mask names and renormalised. No
    approximation ratio is given: a mask may do better than the best cache, because its keys can
    return. It is compared with the per-row top-k bound instead.

    Parameters
    ----------
    trace : Trace
    masks : str or list
        ``"strided,topk:heavy=0.5"``, names, or :class:`~h2o_theory.masks.Mask` objects.
    budgets : str, int or list
        Keys a row sees at most, its own included.
    prefill : int
        Rows before it see everything and are not scored.
    layers, kv_heads : list of int, optional
        All by default.
    workers : int, optional
        Threads; the number of cores by default.
    progress : callable (done, total, label), optional

    Returns
    -------
    pandas.DataFrame
        One row per layer, kv_head, mask (as asked) and budget; columns :data:`MASK_COLUMNS`.
        ``retained_mass`` and ``topk_mass`` are means per scored row, ``output_error`` (NaN
        without values) and ``kl`` means over rows and query heads, as :func:`h2o_theory.replay`
        defines them; ``readmitted`` is the mean number of keys of a row that an earlier scored
        row left out: 0 for what could be a cache.

    Raises
    ------
    UnknownName, BadBudget, OutOfRange, BadArgument
        Also for a mask that needs queries and keys on a trace that holds attention alone.

    Notes
    -----
    O(T^2 log T) per mask and budget, O(block x T) memory.
    """
    masks, heads, asked, threads = _checked(
        trace, masks, budgets, prefill, layers, kv_heads, workers
    )
    found = in_threads(
        lambda head: _replay_head(trace, head, masks, asked, prefill),
        heads,
        threads,
        progress,
        "masks",
    )
    table = pd.DataFrame([row for rows in found for row in rows])
    table["trace"], table["trace_id"] = trace.name, trace.trace_id
    table["model"] = trace.spec.model.get("id", "unknown")
    table["tokens"], table["prefill"] = trace.tokens, prefill
    table["n_rows"] = trace.tokens - prefill
    return table[list(MASK_COLUMNS)]


def _checked(trace, masks, budgets, prefill, layers, kv_heads, workers):
    masks, threads = parse_masks(masks), thread_count(workers)
    to_prefill(prefill, trace.tokens)
    heads = chosen_heads(trace, layers, kv_heads)
    if trace.spec.content == "attention":
        for mask in masks:
            if mask.needs == "qk":
                raise BadArgument(
                    "the mask needs queries and keys, and the trace holds attention alone",
                    where=mask.name,
                    got=trace.name,
                    hint="Record with --store qkv (store='qkv'), or choose one without (ls masks)",
                )
    asked = resolve_even(budgets, trace.tokens)
    return masks, heads, asked, threads


def _replay_head(trace, head, masks, asked, prefill):
    layer, kv_head = head
    spec, extra = trace.layer(layer), {}
    if any(mask.needs == "qk" for mask in masks):
        extra["queries"] = trace.queries(layer, kv_head).astype(np.float64)
        extra["keys"] = trace.keys(layer, kv_head).astype(np.float64)
        extra["scaling"] = spec.scaling
    values = None
    if trace.has_values(layer):
        values = trace.values(layer, kv_head).astype(np.float64)
    runs = [
        _Run(mask, text, k, trace.tokens, prefill) for mask in masks for text, k in asked.items()
    ]
    totals = HeadTotals(trace.tokens, prefill)
    for block in HeadRows(trace, layer, kv_head):
        totals.add(block)
        for run in runs:
            run.add(block, values, extra)
    unit = 1 / UNITS / (trace.tokens - prefill)
    return [
        {"layer": layer, "kv_head": kv_head} | run.result(totals.topk(run.budget) * unit)
        for run in runs
    ]


class _Run:
    """One mask at one budget: its measures, accumulated over the blocks of a head."""

    def __init__(self, mask, text, budget, tokens, prefill):
        self.mask, self.text, self.budget, self._prefill = mask, text, budget, prefill
        self._keys = MaskRun(mask, budget, tokens, prefill)
        self._left_out = np.zeros(tokens, dtype=bool)
        self._mass, self._count = 0.0, 0
        self._error = self._errors = self._kl = self._heads = 0.0
        self._seen, self._most, self._back = 0, 0, 0

    def add(self, block, values, extra):
        """Measure a :class:`h2o_theory.engine.rows.Block`."""
        start, rows, mean, sink_share = block
        seen = self._keys.visible(block, **extra)
        skip = min(max(self._prefill - start, 0), len(mean))
        seen, rows, sink_share = seen[skip:], rows[:, skip:], sink_share[:, skip:]
        if not len(seen):
            return
        sizes = seen.sum(axis=1)
        assert sizes.max() <= self.budget, "a mask exceeded its budget"
        self._seen += int(sizes.sum())
        self._most = max(self._most, int(sizes.max()))
        exists = np.arange(seen.shape[1]) <= np.arange(start + skip, start + len(mean))[:, None]
        gone = np.logical_or.accumulate(exists & ~seen, axis=0)
        before = np.vstack([self._left_out[None], gone[:-1] | self._left_out])
        self._back += int((seen & before).sum())
        self._left_out |= gone[-1]
        mass = np.where(seen, rows, 0.0).sum(axis=-1)
        self._mass += float(mass.mean(axis=0).sum())
        self._count += len(seen)
        self._kl += float(lost_mass_divergences(mass + sink_share).sum())
        self._heads += mass.size
        if values is not None:
            full = rows @ values
            kept = renormalise(rows, seen, sink_share[..., None])
            errors = relative_errors(kept @ values, full)
            self._error += float(errors.sum())
            self._errors += errors.size

    def result(self, topk):
        """The measures of the head; ``topk`` is the bound, a mean per scored row."""
        mass = self._mass / self._count
        return {
            "mask": self.mask.asked,
            "mask_name": self.mask.name,
            "parameters": parameters_text(self.mask.parameters()),
            "budget": self.text,
            "budget_tokens": self.budget,
            "retained_mass": mass,
            "topk_mass": topk,
            "topk_bound_ratio": mass / topk if topk > 0 else np.nan,
            "output_error": self._error / self._errors if self._errors else np.nan,
            "kl": max(self._kl, 0.0) / self._heads,
            "keys_seen_mean": self._seen / self._count,
            "keys_seen_max": self._most,
            "readmitted": self._back / self._count,
        }
