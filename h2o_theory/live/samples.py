"""Continuations drawn under eviction, and how much they repeat one another."""

import json

import numpy as np
import pandas as pd

from h2o_theory.engine.arguments import checked_seed
from h2o_theory.errors import BadArgument
from h2o_theory.live.bleu import self_bleu
from h2o_theory.live.campaign import is_out_of_memory
from h2o_theory.live.generate import check_draws, generate
from h2o_theory.live.refuse import check_context
from h2o_theory.live.tasks import live_tasks
from h2o_theory.store import (
    LIVE_ROOMS,
    CellStore,
    code_identity,
    identity,
    model_identity,
    text_identity,
)

__all__ = ["sample_table", "sample_tasks"]


def sample_tasks(
    model, prompt, policies, budgets, *, samples, new_tokens, temperature, positions="original"
):
    """What :func:`sample_table` is to draw: a list of LiveTask, everything checked.

    Arguments and errors as there.
    """
    for name, value, least in (("samples", samples, 2), ("prompt", len(prompt), 1)):
        if value < least:
            raise BadArgument(
                "Self-BLEU compares samples of a prompt",
                where=name,
                got=value,
                expected=f"at least {least}",
            )
    check_draws(new_tokens, temperature)
    tokens = len(prompt) + new_tokens
    if positions == "original":
        check_context(model.model, tokens)
    return live_tasks(policies, budgets, model, tokens, len(prompt), positions)


def sample_table(
    model,
    prompt,
    policies,
    budgets,
    *,
    samples,
    new_tokens,
    temperature,
    out,
    positions="original",
    seed=0,
    progress=None,
):
    """Draw continuations of a prompt under every policy and budget, the full cache first.

    The prompt is read with the full cache, then cut to the budget (a share is one of prompt and
    new tokens). Finished cells are kept as those of
    :func:`~h2o_theory.live.campaign.run_live` are.

    Parameters
    ----------
    model : LoadedModel
    prompt : token ids
    policies, budgets : str or list
    samples : int
        At least 2, for Self-BLEU.
    new_tokens : int
    temperature : float
    out : path
    positions : str
    seed : int
        Sample i is drawn with seed + i.
    progress : callable (done, total, label), optional

    Returns
    -------
    pandas.DataFrame
        policy, parameters, budget, samples, self_bleu (over token ids), kv_bytes (at the largest
        step of any sample), held_bytes, status, reason, text (of the first sample).

    Raises
    ------
    BadArgument, BadBudget, UnknownName, OutOfRange, OutputExists, UnsupportedModel
        Before any sample is drawn.
    """
    prompt, seed = np.asarray(prompt, dtype=np.int64), checked_seed(seed)
    options = {"temperature": temperature, "positions": positions}
    tasks = sample_tasks(
        model, prompt, policies, budgets, samples=samples, new_tokens=new_tokens, **options
    )
    store, rows, code = CellStore(out), [], code_identity(*LIVE_ROOMS)
    for done, task in enumerate(tasks, start=1):
        row = {
            "policy": task.policy.name,
            "parameters": task.parameters,
            "budget": task.text,
            "samples": samples,
            "status": "done",
            "reason": "",
        }
        cell = identity(
            kind="samples",
            code=code,
            model=model_identity(model.model),
            text=text_identity(prompt),
            samples=samples,
            new_tokens=new_tokens,
            seed=seed,
            **task.what,
            **options,
        )
        found = store.load(cell)
        try:
            if found is None:
                own = task.policy, task.budget
                made = [
                    generate(model, prompt, new_tokens, *own, seed=seed + i, **options)
                    for i in range(samples)
                ]
                found = _record(made, model.tokenizer)
                store.save(cell, *found)
            row |= found[0]
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            row |= {"status": "failed", "reason": str(error)}
        rows.append(row)
        if progress:
            progress(done, len(tasks), "samples")
    return pd.DataFrame(rows)


def _record(made, tokenizer):
    longest = max(len(item.continuation) for item in made)
    ids = np.full((len(made), longest), -1)
    for number, item in enumerate(made):
        ids[number, : len(item.continuation)] = item.continuation
    record = {
        "self_bleu": self_bleu([item.continuation.tolist() for item in made]),
        "kv_bytes": max(item.peak_kv_bytes for item in made),
        "held_bytes": int(max(item.held_bytes.max() for item in made)),
        "text": json.dumps(tokenizer.decode(made[0].continuation.tolist()))[1:-1],
    }
    return record, {"continuations": ids}
