"""Many policies and budgets on one text: cells that are computed once, and a table of them."""

import math
import time
from dataclasses import dataclass

import pandas as pd

from h2o_theory.engine.arguments import checked_seed
from h2o_theory.errors import BadArgument, TextError
from h2o_theory.live.evaluate import check_full_run, evaluate, first_scored, full_run
from h2o_theory.live.stream import as_token_ids
from h2o_theory.live.tasks import live_tasks
from h2o_theory.recorder.models import LoadedModel
from h2o_theory.store import (
    LIVE_ROOMS,
    CellStore,
    code_identity,
    identity,
    model_identity,
    text_identity,
)

__all__ = ["LIVE_COLUMNS", "Campaign", "is_out_of_memory", "run_live", "windows_of"]

LIVE_COLUMNS = (
    "model",
    "text",
    "window",
    "tokens",
    "policy",
    "parameters",
    "budget",
    "budget_tokens",
    "prefill",
    "positions",
    "seed",
    "level",
    "n",
    "loss",
    "perplexity",
    "full_loss",
    "loss_increase",
    "agreement",
    "kl",
    "kv_bytes",
    "full_kv_bytes",
    "held_bytes",
    "seconds",
    "status",
    "reason",
    "cell",
)
"""The columns of the table, in order."""


@dataclass(frozen=True)
class Campaign:
    """What became of the cells.

    Attributes
    ----------
    table : pandas.DataFrame
        One row per window, policy and budget; columns :data:`LIVE_COLUMNS`. Where kv_heads have
        budgets of their own, ``budget_tokens`` is their mean, rounded, and ``parameters`` lack the
        parts, as in the summary of a replay. Losses are nats per token; ``kv_bytes`` are those
        visible at the largest step, ``full_kv_bytes`` those of the full cache; ``level`` is
        ``closed``.
    losses : dict of str to float64 array
        By cell: the losses [T] of its window; token 0 has none.
    sizes : dict of str to int64 array
        By cell: entries visible at each step, all layers and kv_heads together.
    skipped : int
        Cells that were finished before.
    """

    table: pd.DataFrame
    losses: dict
    sizes: dict
    skipped: int

    @property
    def failed(self):
        """Number of cells that failed."""
        return int((self.table["status"] == "failed").sum())


def windows_of(ids, tokens, count):
    """The first ``count`` windows of ``tokens`` ids, one after the other.

    Raises
    ------
    TextError
        If the text is too short.
    """
    ids = as_token_ids(ids)
    tokens = len(ids) if tokens is None else tokens
    if tokens < 2 or count < 1:
        raise BadArgument(
            "a window needs at least two tokens, and one window is the least",
            where="tokens, windows",
            got=f"{count} windows of {tokens} tokens",
        )
    if len(ids) < tokens * count:
        raise TextError(
            "the text is shorter than the tokens asked for",
            where="text",
            got=f"{len(ids)} tokens",
            expected=f"at least {count} x {tokens}",
            hint="Use a longer text, fewer windows or fewer tokens",
        )
    return [ids[i * tokens : (i + 1) * tokens] for i in range(count)]


def run_live(
    model,
    windows,
    policies,
    budgets,
    *,
    out,
    text="text",
    prefill=0,
    positions="original",
    seed=0,
    progress=None,
):
    """Evaluate every policy at every budget on every window, and the full cache beside them.

    A cell is one policy at one budget on one window. Finished cells are kept under ``out`` by
    what they are a result of (weights, tokens, policy, budget, prefill, positions, seed,
    version), so a second run computes only what is missing. A cell that runs out of memory is
    marked as failed with the reason, and the others go on.

    Parameters
    ----------
    model : transformers.PreTrainedModel or LoadedModel
    windows : list of token ids
        Of equal length, see :func:`windows_of`.
    policies, budgets : str or list
        As for :func:`h2o_theory.replay`, matrices and ``"pyramid:20%"`` included; clairvoyant
        policies are refused, and budget rules that read rows.
    out : path
        Folder of the campaign.
    text : str
        What the table calls the text.
    prefill, positions, seed
        As for :func:`~h2o_theory.live.evaluate`.
    progress : callable (done, total, label), optional

    Returns
    -------
    Campaign

    Raises
    ------
    BadArgument, BadBudget, UnknownName, OutOfRange, OutputExists, UnsupportedModel
        Before any work is done.
    """
    loaded = model if isinstance(model, LoadedModel) else None
    model = loaded.model if loaded else model
    name = loaded.name if loaded else type(model).__name__
    windows, seed = [as_token_ids(window) for window in windows], checked_seed(seed)
    if len({len(window) for window in windows}) != 1:
        raise BadArgument(
            "windows of equal length are needed, and one at least",
            where="windows",
            got=[len(window) for window in windows],
        )
    check_full_run(model, len(windows[0]))
    tasks = live_tasks(policies, budgets, model, len(windows[0]), prefill, positions)
    first_scored(prefill, len(windows[0]))
    store = CellStore(out)
    base = {"code": code_identity(*LIVE_ROOMS), "model": model_identity(model)}
    rows, losses, sizes, skipped = [], {}, {}, 0
    for number, ids in enumerate(windows):
        reference = None
        for done, task in enumerate(tasks):
            options = {"prefill": prefill, "positions": positions, "seed": seed}
            text_id = text_identity(ids)
            cell = identity(kind="loss", text=text_id, **base, **task.what, **options)
            row = {
                "model": name,
                "text": text,
                "window": number,
                "tokens": len(ids),
                "policy": task.policy.name,
                "parameters": task.parameters,
                "budget": task.text,
                "budget_tokens": task.budget_tokens,
                **options,
                "level": "closed",
                "status": "done",
                "reason": "",
                "cell": cell,
            }
            found = store.load(cell)
            skipped += found is not None
            if found is None:
                try:
                    reference = reference or full_run(model, ids)
                    found = _compute(model, ids, task, options, reference)
                    store.save(cell, *found)
                except Exception as error:
                    if not is_out_of_memory(error):
                        raise
                    row |= {"status": "failed", "reason": _first_line(error)}
            if found is not None:
                row |= found[0]
                losses[cell], sizes[cell] = found[1]["losses"], found[1]["sizes"]
            rows.append(row)
            if progress:
                progress(number * len(tasks) + done + 1, len(windows) * len(tasks), "cells")
    return Campaign(_with_full(pd.DataFrame(rows)), losses, sizes, skipped)


def is_out_of_memory(error):
    """Whether an exception says that memory, of the machine or a device, did not suffice."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("out of memory" in text or "allocate" in text)


def _compute(model, ids, task, options, reference):
    """Record and arrays of a cell; those of the full cache are the reference's own."""
    began = time.perf_counter()
    first = first_scored(options["prefill"], len(ids))
    losses, sizes = reference.losses, reference.sizes
    record = {
        "agreement": 1.0,
        "kl": 0.0,
        "kv_bytes": reference.kv_bytes,
        "full_kv_bytes": reference.kv_bytes,
        "held_bytes": reference.kv_bytes,
    }
    if task.policy.follows_budget:
        result = evaluate(model, ids, task.policy, task.budget, reference=reference, **options)
        losses, sizes = result.losses, result.sizes
        rows = slice(first - 1, len(ids) - 1)
        record |= {
            "agreement": float(result.agreement[rows].mean()),
            "kl": float(result.kl[rows].mean()),
            "kv_bytes": result.peak_kv_bytes,
            "held_bytes": result.held_bytes,
        }
    loss = float(losses[first:].mean())
    record |= {"n": len(ids) - first, "loss": loss, "perplexity": math.exp(loss)}
    return record | {"seconds": time.perf_counter() - began}, {"losses": losses, "sizes": sizes}


def _with_full(table):
    """The loss of the full cache beside each cell of the same window."""
    full = table[(table["policy"] == "full") & (table["status"] == "done")]
    known = full.set_index("window")["loss"] if "loss" in full else pd.Series(dtype=float)
    table["full_loss"] = table["window"].map(known)
    table = table.reindex(columns=LIVE_COLUMNS)
    table["loss_increase"] = table["loss"] - table["full_loss"]
    return table


def _first_line(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
