"""Many policies and budgets on one text: cells that are computed once, and a table of them."""

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from h2o_theory.annotations import PathLike, Progress
from h2o_theory.budgets import BudgetLike
from h2o_theory.engine.columns import POLICY_COLUMNS, with_whole_parts
from h2o_theory.errors import BadArgument, TextError
from h2o_theory.live.admission import (
    admit_live,
    admit_live_policies,
    network_of,
    require_prediction,
)
from h2o_theory.live.evaluate import evaluate_run, read_whole, require_full_run
from h2o_theory.live.stream import as_token_ids
from h2o_theory.policies import PolicyLike
from h2o_theory.recorder.models import LoadedModel
from h2o_theory.store import (
    LIVE_ROOMS,
    CellStore,
    code_identity,
    holds_output,
    identity,
    model_identity,
    policy_identity,
    text_identity,
)

__all__ = ["LIVE_COLUMNS", "Campaign", "is_out_of_memory", "run_live", "windows_of"]

LIVE_COLUMNS = (
    "model",
    "text",
    "window",
    "tokens",
    *POLICY_COLUMNS,
    "budget",
    "budget_tokens",
    "prefill",
    "positions",
    "seed",
    "loop",
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
        visible at the largest step, ``full_kv_bytes`` those of the full cache; ``loop`` is
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


def windows_of(ids: Any, tokens: int | None, count: int) -> list[np.ndarray]:
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


@holds_output
def run_live(
    model: Any,
    windows: list[Any],
    policies: PolicyLike,
    budgets: BudgetLike,
    *,
    out: PathLike,
    text: str = "text",
    prefill: int = 0,
    positions: str = "original",
    seed: int = 0,
    progress: Progress | None = None,
) -> Campaign:
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
    name = model.name if isinstance(model, LoadedModel) else type(model).__name__
    model, windows = network_of(model), [as_token_ids(window) for window in windows]
    if len({len(window) for window in windows}) != 1:
        raise BadArgument(
            "windows of equal length are needed, and one at least",
            where="windows",
            got=[len(window) for window in windows],
        )
    tokens = len(windows[0])
    require_full_run(model, tokens)
    # The full cache comes first, once: everything is compared with it.
    others = [policy for policy in admit_live_policies(policies) if policy.follows_budget]
    options = {"tokens": tokens, "prefill": prefill, "seed": seed, "positions": positions}
    runs = admit_live(model, ["full", *others], budgets, **options)
    require_prediction(prefill, tokens)
    return _finished(model, name, windows, runs, CellStore(out), text, progress)


def _finished(model, name, windows, runs, store, text, progress):
    """The campaign, with every cell computed that the store does not hold."""
    base = {"code": code_identity(*LIVE_ROOMS), "model": model_identity(model)}
    base["kind"] = "loss"
    policies = {id(run.policy): policy_identity(run.policy) for run in runs}
    lines, losses, sizes, skipped = [], {}, {}, 0
    for number, ids in enumerate(windows):
        reference = None
        for done, run in enumerate(runs, start=number * len(runs) + 1):
            cell = identity(
                text=text_identity(ids),
                policy=policies[id(run.policy)],
                budget=sorted((*head, budget) for head, budget in run.tokens.items()),
                prefill=run.prefill,
                seed=run.seed,
                positions=run.positions,
                **base,
            )
            line = {
                "model": name,
                "text": text,
                "window": number,
                "tokens": len(ids),
                **run.columns(),
                "positions": run.positions,
                "loop": "closed",
                "status": "done",
                "reason": "",
                "cell": cell,
            }
            found = store.load(cell)
            skipped += found is not None
            if found is None:
                try:
                    reference = reference or read_whole(model, ids)
                    found = _compute(model, ids, run, reference)
                    store.save(cell, *found)
                except Exception as error:
                    if not is_out_of_memory(error):
                        raise
                    line |= {"status": "failed", "reason": _first_line(error)}
            if found is not None:
                line |= found[0]
                losses[cell], sizes[cell] = found[1]["losses"], found[1]["sizes"]
            lines.append(line)
            if progress:
                progress(done, len(windows) * len(runs), "cells")
    return Campaign(_with_full(pd.DataFrame(lines)), losses, sizes, skipped)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory, of the machine or a device, did not suffice."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("out of memory" in text or "allocate" in text)


def _compute(model, ids, run, reference):
    """Record and arrays of a cell; those of the full cache are the reference's own."""
    began, first = time.perf_counter(), run.prefill + 1
    losses, sizes = reference.losses, reference.sizes
    record = {
        "agreement": 1.0,
        "kl": 0.0,
        "kv_bytes": reference.kv_bytes,
        "full_kv_bytes": reference.kv_bytes,
        "held_bytes": reference.kv_bytes,
    }
    if run.policy.follows_budget:
        result = evaluate_run(model, ids, run, reference=reference)
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
    table = with_whole_parts(table)
    full = table[(table["policy_name"] == "full") & (table["status"] == "done")]
    known = full.set_index("window")["loss"] if "loss" in full else pd.Series(dtype=float)
    table["full_loss"] = table["window"].map(known)
    table = table.reindex(columns=LIVE_COLUMNS)
    table["loss_increase"] = table["loss"] - table["full_loss"]
    return table


def _first_line(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
