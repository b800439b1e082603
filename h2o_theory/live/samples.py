"""Continuations drawn under eviction, and how much they repeat one another."""

import dataclasses
import json
from typing import Any

import numpy as np
import pandas as pd

from h2o_theory.annotations import PathLike, Progress
from h2o_theory.budgets import BudgetLike
from h2o_theory.engine.admission import Run
from h2o_theory.engine.columns import with_whole_parts
from h2o_theory.errors import BadArgument
from h2o_theory.live.admission import admit_live, admit_live_policies
from h2o_theory.live.bleu import self_bleu
from h2o_theory.live.campaign import is_out_of_memory
from h2o_theory.live.generate import generate_run, require_draws
from h2o_theory.policies import PolicyLike
from h2o_theory.store import (
    LIVE_ROOMS,
    CellStore,
    code_identity,
    holds_output,
    identity,
    lock_output,
    model_identity,
    policy_identity,
    text_identity,
)

__all__ = ["admit_samples", "sample_table"]


def admit_samples(
    model: Any,
    prompt: np.ndarray,
    policies: PolicyLike,
    budgets: BudgetLike,
    *,
    samples: int,
    new_tokens: int,
    temperature: float,
    positions: str = "original",
    seed: int = 0,
) -> list[Run]:
    """The runs that :func:`sample_table` is to draw from, the full cache first.

    Arguments and errors as there.
    """
    for name, value, least in (("samples", samples, 2), ("prompt", len(prompt), 1)):
        if value < least:
            raise BadArgument(
                f"{name} must be at least {least}: Self-BLEU compares samples of a prompt",
                got=value,
            )
    require_draws(new_tokens, temperature)
    others = [policy for policy in admit_live_policies(policies) if policy.follows_budget]
    options = {"prefill": len(prompt), "positions": positions, "seed": seed}
    tokens = len(prompt) + new_tokens
    return admit_live(model, ["full", *others], budgets, tokens=tokens, **options)


@holds_output
def sample_table(
    model: Any,
    prompt: Any,
    policies: PolicyLike,
    budgets: BudgetLike,
    *,
    samples: int,
    new_tokens: int,
    temperature: float,
    out: PathLike,
    positions: str = "original",
    seed: int = 0,
    progress: Progress | None = None,
) -> pd.DataFrame:
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
        The columns of a policy, budget, samples, self_bleu (over token ids), kv_bytes (at the
        largest step of any sample), held_bytes, status, reason, text (of the first sample).

    Raises
    ------
    BadArgument, BadBudget, UnknownName, OutOfRange, OutputExists, UnsupportedModel
        Before any sample is drawn.
    """
    prompt = np.asarray(prompt, dtype=np.int64)
    runs = admit_samples(
        model,
        prompt,
        policies,
        budgets,
        samples=samples,
        new_tokens=new_tokens,
        temperature=temperature,
        positions=positions,
        seed=seed,
    )
    with lock_output(out):
        store, lines, code = CellStore(out), [], code_identity(*LIVE_ROOMS)
        for done, run in enumerate(runs, start=1):
            line = {**run.columns(), "samples": samples, "status": "done", "reason": ""}
            cell = identity(
                kind="samples",
                code=code,
                model=model_identity(model.model),
                text=text_identity(prompt),
                samples=samples,
                new_tokens=new_tokens,
                temperature=temperature,
                policy=policy_identity(run.policy),
                budget=sorted((*head, budget) for head, budget in run.tokens.items()),
                positions=run.positions,
                seed=run.seed,
            )
            found = store.load(cell)
            try:
                if found is None:
                    seeds = range(run.seed, run.seed + samples)
                    own = [dataclasses.replace(run, seed=one) for one in seeds]
                    made = [
                        generate_run(model.model, prompt, one, temperature=temperature)
                        for one in own
                    ]
                    found = _record(made, model.tokenizer)
                    store.save(cell, *found)
                line |= found[0]
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                line |= {"status": "failed", "reason": str(error)}
            lines.append(line)
            if progress:
                progress(done, len(runs), "samples")
    return with_whole_parts(pd.DataFrame(lines))


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
