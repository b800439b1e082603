"""Step-by-step generation with a KV cache that really shrinks."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from h2o_theory.annotations import Progress
from h2o_theory.budgets import BudgetLike
from h2o_theory.dependencies import require
from h2o_theory.engine.admission import Run
from h2o_theory.errors import BadArgument
from h2o_theory.live.admission import admit_one, network_of
from h2o_theory.live.evaluate import visible_sizes
from h2o_theory.live.loop import run_loop
from h2o_theory.live.stream import as_token_ids, cache_argument
from h2o_theory.policies import PolicyLike

__all__ = ["Generation", "generate", "generate_run", "require_draws"]


@dataclass(frozen=True)
class Generation:
    """A continuation, and the cache on the way.

    Attributes
    ----------
    ids : int64 [prompt + new]
        The prompt and what follows it; shorter if the model ended its text.
    prompt : int
        Tokens of the prompt.
    sizes : int64 [steps]
        Entries visible at each step, all layers and kv_heads together; the last token is never
        read.
    held_bytes : int64 [new]
        Bytes of keys and values really held when each new token had been drawn, without what is
        kept aside for a policy to look at.
    peak_kv_bytes : int
        Bytes of keys and values visible at the largest step.
    """

    ids: np.ndarray
    prompt: int
    sizes: np.ndarray
    held_bytes: np.ndarray
    peak_kv_bytes: int

    @property
    def continuation(self):
        """The new tokens."""
        return self.ids[self.prompt :]


def generate(
    model: Any,
    ids: Any,
    new_tokens: int,
    policy: PolicyLike = "full",
    budget: BudgetLike = "100%",
    *,
    prefill: int | None = None,
    temperature: float = 0.0,
    positions: str = "original",
    seed: int = 0,
    progress: Progress | None = None,
) -> Generation:
    """Continue a prompt token by token while a policy evicts.

    Parameters
    ----------
    model : transformers.PreTrainedModel or LoadedModel
    ids : token ids [T] or [1, T]
        The prompt.
    new_tokens : int
        At most so many; the model's end-of-text token ends it earlier.
    policy, budget, positions
        As for :func:`~h2o_theory.live.closed_loop`; a share is one of prompt and new tokens.
    prefill : int, optional
        Rows that see everything; the whole prompt by default, 0 to evict while reading it.
    temperature : float
        0 takes the most probable token.
    seed : int
        For the draws and for random policies.
    progress : callable (done, total, label), optional

    Returns
    -------
    Generation

    Raises
    ------
    BadArgument
        For an empty prompt, no new token, a temperature below 0 or no number, a negative seed;
        else as ``closed_loop``.
    """
    model, ids = network_of(model), as_token_ids(ids)
    if len(ids) < 1:
        raise BadArgument("ids must be at least 1 token", got=0)
    require_draws(new_tokens, temperature)
    run = admit_one(
        model,
        policy,
        budget,
        tokens=len(ids) + new_tokens,
        prefill=len(ids) if prefill is None else prefill,
        positions=positions,
        seed=seed,
    )
    return generate_run(model, ids, run, temperature=temperature, progress=progress)


def generate_run(
    model: Any,
    ids: np.ndarray,
    run: Run,
    *,
    temperature: float = 0.0,
    progress: Progress | None = None,
) -> Generation:
    """:func:`generate` of a run that was admitted; its length is that of prompt and new tokens."""
    torch = require("torch")
    draws = torch.Generator(device=model.device).manual_seed(run.seed)
    ends = np.atleast_1d(model.config.eos_token_id if model.config.eos_token_id is not None else [])
    new_tokens, known, held = run.length - len(ids), ids.tolist(), []
    loop = run_loop(model, run)
    with loop as live, torch.no_grad():
        cache = {cache_argument(model): live.cache, "use_cache": True}
        batch = torch.tensor([known], device=model.device)
        if run.policy.scope == "model":
            for token in known[:-1]:
                model(input_ids=torch.tensor([[token]], device=model.device), **cache)
            batch = batch[:, -1:]
        for done in range(new_tokens):
            # Logits of the last row alone: those of a long prompt would fill the memory.
            logits = model(input_ids=batch, logits_to_keep=1, **cache).logits[0, -1].float()
            if temperature == 0:
                token = int(logits.argmax())
            else:
                chances = torch.softmax(logits / temperature, dim=-1)
                token = int(torch.multinomial(chances, 1, generator=draws))
            known.append(token)
            held.append(live.held_bytes())
            if progress:
                progress(done + 1, new_tokens, "generate")
            if token in ends:
                break
            batch = torch.tensor([[token]], device=model.device)
        sizes = visible_sizes(live.evicted_at)[: live.seen]
        return Generation(
            ids=np.array(known),
            prompt=len(ids),
            sizes=sizes,
            held_bytes=np.array(held),
            peak_kv_bytes=int(sizes.max()) * live.entry_bytes(),
        )


def require_draws(new_tokens: int, temperature: float) -> None:
    """Raise BadArgument unless new_tokens >= 1 and temperature >= 0."""
    if new_tokens < 1:
        raise BadArgument("new_tokens must be at least 1", got=new_tokens)
    if not temperature >= 0:
        raise BadArgument("temperature must be at least 0", got=temperature)
