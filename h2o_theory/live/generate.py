"""Step-by-step generation with a KV cache that really shrinks."""

from dataclasses import dataclass

import numpy as np

from h2o_theory.dependencies import require
from h2o_theory.engine.arguments import checked_seed
from h2o_theory.errors import BadArgument
from h2o_theory.live.evaluate import visible_sizes
from h2o_theory.live.loop import closed_loop
from h2o_theory.live.refuse import check_policy_runs_live
from h2o_theory.live.stream import as_token_ids, cache_argument
from h2o_theory.recorder.models import LoadedModel

__all__ = ["Generation", "generate"]


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
    model,
    ids,
    new_tokens,
    policy="full",
    budget="100%",
    *,
    prefill=None,
    temperature=0.0,
    positions="original",
    seed=0,
    progress=None,
):
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
    torch = require("torch")
    model = model.model if isinstance(model, LoadedModel) else model
    ids = as_token_ids(ids)
    if len(ids) < 1:
        raise BadArgument("no token", where="ids", got=0, expected="at least 1")
    check_draws(new_tokens, temperature)
    draws = torch.Generator(device=model.device).manual_seed(checked_seed(seed))
    ends = np.atleast_1d(model.config.eos_token_id if model.config.eos_token_id is not None else [])
    tokens, known, held = len(ids) + new_tokens, ids.tolist(), []
    policy = check_policy_runs_live(policy)
    loop = closed_loop(
        model,
        policy,
        budget,
        tokens=tokens,
        prefill=len(ids) if prefill is None else prefill,
        positions=positions,
        seed=seed,
    )
    with loop as live, torch.no_grad():
        cache = {cache_argument(model): live.cache, "use_cache": True}
        batch = torch.tensor([known], device=model.device)
        if policy.scope == "model":
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


def check_draws(new_tokens, temperature):
    """Raise BadArgument if no token is to be drawn, or with no temperature that there is."""
    if new_tokens < 1:
        raise BadArgument("no token", where="new_tokens", got=new_tokens, expected="at least 1")
    if not temperature >= 0:
        raise BadArgument(
            "no such temperature", where="temperature", got=temperature, expected="at least 0"
        )
