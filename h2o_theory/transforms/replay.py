"""Replay of policies on transformed keys and values, at equal bytes."""

from dataclasses import fields

import pandas as pd

from h2o_theory.budgets import resolve_even
from h2o_theory.engine import schedules
from h2o_theory.engine.arguments import checked_prefill, chosen_heads, thread_count
from h2o_theory.engine.threads import in_threads
from h2o_theory.errors import BadArgument, BadBudget
from h2o_theory.policies import parse_policies
from h2o_theory.transforms.base import FULL_BITS
from h2o_theory.transforms.exact import Exact
from h2o_theory.transforms.output import output_error
from h2o_theory.transforms.registry import parse_transforms
from h2o_theory.transforms.view import TransformedTrace

__all__ = ["TRANSFORM_COLUMNS", "replay_transforms"]

TRANSFORM_COLUMNS = (
    "trace",
    "trace_id",
    "model",
    "tokens",
    "layer",
    "kv_head",
    "policy",
    "transform",
    "parameters",
    "budget",
    "budget_bytes",
    "budget_tokens",
    "prefill",
    "n_rows",
    "retained_mass",
    "output_error",
)
"""The columns of the table of transforms, in order."""


def replay_transforms(
    trace,
    policies,
    transforms,
    budgets,
    *,
    prefill=0,
    layers=None,
    kv_heads=None,
    seed=0,
    workers=None,
    progress=None,
):
    r"""Compare ways to spend the same bytes: many entries in few bits, or few in full precision.

    A budget of k entries in 16 bits pays :math:`b = 16 k (d + d_v)` bits per kv_head; a transform
    gets the most entries whose :meth:`~h2o_theory.transforms.Transform.cache_bits` stay within
    them, its residual and scales included. The policy sees rows computed from the stored keys, and

    .. math:: \text{output error} = \frac{\| \sum_{j \in S_t} \hat A_{t,j} \hat v_j - o_t \|}
              {\| o_t \|}

    compares with the output :math:`o_t` of the full cache in full precision.

    Parameters
    ----------
    trace : Trace
        With queries, keys and values.
    policies : str or list
        As :func:`h2o_theory.replay` takes them; ``full`` keeps every entry, whatever the bytes.
    transforms : str or list
        ``"exact,kivi:bits=2"``, names, or :class:`~h2o_theory.transforms.Transform` objects.
    budgets : str, int or list
        Entries of a cache in 16 bits, or shares of it; every transform gets their bytes.
    prefill : int
        Rows before it see everything in full precision and are not scored.
    layers, kv_heads : list of int, optional
        All by default.
    seed : int
    workers : int, optional
        Threads; the number of cores by default.
    progress : callable (done, total, label), optional

    Returns
    -------
    pandas.DataFrame
        One row per layer, kv_head, policy, transform and budget; columns
        :data:`TRANSFORM_COLUMNS`. ``budget_tokens`` is what the bytes buy, at most T;
        ``retained_mass`` is that of the exact rows on the visible sets.

    Raises
    ------
    UnknownName, UnknownName, BadBudget, OutOfRange, BadArgument
        Also for a trace without queries, keys or values.

    Notes
    -----
    Open-loop, as every replay: rounding here does not reach deeper layers. O(T^2 d) per policy,
    transform and budget.
    """
    policies, transforms = parse_policies(policies), parse_transforms(transforms)
    checked_prefill(prefill, trace.tokens)
    threads, heads = thread_count(workers), chosen_heads(trace, layers, kv_heads)
    _require_tensors(trace, heads)
    asked = resolve_even(budgets, trace.tokens)
    jobs = _jobs(trace, policies, transforms, asked, heads)
    records, last = [], None
    exact = TransformedTrace(trace, Exact(), prefill)
    for number, (which, policy, text, entries) in enumerate(jobs, start=1):
        if which != last:
            view, last = TransformedTrace(trace, transforms[which], prefill), which
        common = {"prefill": prefill, "layers": layers, "kv_heads": kv_heads, "seed": seed}
        found = schedules(view, policy, entries, workers=workers, **common)

        def measure(head, view=view, found=found):
            return output_error(exact, view, *head, found[head], prefill)

        measured = in_threads(measure, heads, threads, None, "")
        shown = {item.name: getattr(transforms[which], item.name)
                 for item in fields(transforms[which])}  # fmt: skip
        for (layer, kv_head), (mass, error) in zip(heads, measured, strict=True):
            spec = trace.layer(layer)
            records.append(
                {
                    "layer": layer,
                    "kv_head": kv_head,
                    "policy": policy.name,
                    "transform": transforms[which].name,
                    "parameters": " ".join(f"{name}={value}" for name, value in shown.items()),
                    "budget": text,
                    "budget_bytes": _bits(asked[text], spec) // 8,
                    "budget_tokens": entries,
                    "retained_mass": mass,
                    "output_error": error,
                }
            )
        if progress:
            progress(number, len(jobs), "policies x transforms x budgets")
    table = pd.DataFrame(records)
    table["trace"], table["trace_id"] = trace.name, trace.trace_id
    table["model"] = trace.spec.model.get("id", "unknown")
    table["tokens"], table["prefill"] = trace.tokens, prefill
    table["n_rows"] = trace.tokens - prefill
    return table[list(TRANSFORM_COLUMNS)]


def _bits(entries, spec):
    return FULL_BITS * entries * (spec.head_dim + spec.value_dim)


def _require_tensors(trace, heads):
    """Refuse a trace without queries, keys and values before any work."""
    if trace.spec.content == "attention":
        raise BadArgument(
            "transforms need queries and keys, and the trace holds attention alone",
            where=trace.name,
            hint="Record with --store qkv (store='qkv')",
        )
    for layer, kv_head in heads:
        trace.values(layer, kv_head, 0, 1)


def _jobs(trace, policies, transforms, asked, heads):
    """``(index of the transform, policy, budget as asked, entries it buys)``, all of them."""
    shapes = {(trace.layer(layer).head_dim, trace.layer(layer).value_dim) for layer, _ in heads}
    jobs = []
    for which, transform in enumerate(transforms):
        for policy in policies:
            for text, k in asked.items():
                entries = min(
                    transform.entries_within(FULL_BITS * k * sum(shape), *shape) for shape in shapes
                )
                if entries < 1:
                    raise BadBudget(
                        "the bytes do not pay for one entry",
                        where=transform.name,
                        got=f"{text}: {k} entries of 16 bits",
                        hint="Ask for a larger budget",
                    )
                entries = trace.tokens if policy.name == "full" else min(entries, trace.tokens)
                jobs.append((which, policy, text, entries))
    return jobs
