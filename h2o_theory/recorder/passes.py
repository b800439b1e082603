"""Running a model over a sequence: in one pass, in pieces, and on into generated tokens."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any

from h2o_theory.dependencies import require
from h2o_theory.errors import BadArgument

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["GenerationSettings", "generate", "prefill", "require_piece"]

TINY = sys.float_info.min
"""The smallest normal number: what is "above 0"."""


@dataclass(frozen=True)
class GenerationSettings:
    """How tokens after the prompt are chosen.

    Attributes
    ----------
    new_tokens : int
        How many are generated and recorded, unless the model ends the text before.
    temperature : float or None
        None for greedy choice, unless ``top_p`` is given.
    top_p : float or None
        Share of the probability to sample from.
    seed : int
        Of the sampling.

    Raises
    ------
    BadArgument
        If a number is out of range.
    """

    new_tokens: int
    temperature: float | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self):
        for name, kind, lowest, highest, expected in (
            ("new_tokens", int, 1, math.inf, "a whole number, at least 1"),
            ("temperature", (int, float), TINY, sys.float_info.max, "a number above 0"),
            ("top_p", (int, float), TINY, 1, "a number above 0, at most 1"),
            ("seed", int, 0, 2**63 - 1, "a whole number from 0, below 2^63"),
        ):
            got = getattr(self, name)
            if got is None and name in ("temperature", "top_p"):
                continue
            if isinstance(got, bool) or not isinstance(got, kind) or not lowest <= got <= highest:
                raise BadArgument(f"{name} must be {expected}", got=got)

    @property
    def sampled(self) -> bool:
        """Whether tokens are drawn at random rather than the likeliest taken."""
        return self.temperature is not None or self.top_p is not None

    def describe(self) -> dict[str, Any]:
        """The trace's ``generation`` entry."""
        if not self.sampled:
            return {"method": "greedy", "new_tokens": self.new_tokens}
        chosen = {"temperature": self.temperature or 1.0, "top_p": self.top_p or 1.0}
        return {"method": "sampled", **asdict(self), **chosen}


def require_piece(piece: int | None) -> None:
    """Raise BadArgument unless ``piece`` is None or a whole number of tokens from 1."""
    if piece is not None and (isinstance(piece, bool) or not isinstance(piece, int) or piece < 1):
        raise BadArgument("piece must be a whole number of tokens, at least 1", got=piece)


def prefill(network: PreTrainedModel, ids: Sequence[int], piece: int | None = None) -> None:
    """Run the decoder over token ids without the language-model head.

    A recording needs no logits, and T x vocabulary of them (403 MB for SmolLM2 at T = 2048) would
    outweigh the trace. In one pass no KV cache is kept. In pieces one is, O(T d) per layer, and
    besides that memory is bounded by the piece.

    Parameters
    ----------
    network : transformers.PreTrainedModel
    ids : list of int
    piece : int, optional
        Tokens per pass; all at once by default.
    """
    torch, transformers = require("torch"), require("transformers")
    decoder = network.base_model
    batch = torch.tensor([ids], device=_input_device(network))
    with torch.no_grad():
        if piece is None or piece >= len(ids):
            decoder(input_ids=batch, use_cache=False)
            return
        cache = transformers.DynamicCache(config=network.config)
        accepted = signature(decoder.forward).parameters
        name = "cache" if "cache" in accepted else "past_key_values"
        for part in batch.split(piece, dim=1):
            decoder(input_ids=part, **{name: cache}, use_cache=True)


def generate(
    network: PreTrainedModel,
    ids: Sequence[int],
    generation: GenerationSettings,
    piece: int | None = None,
) -> None:
    """Run a model over a prompt and on into tokens that it chooses itself.

    One token more is chosen than asked for: a token has a row only once it has been fed back.

    Parameters
    ----------
    network : transformers.PreTrainedModel
        With a language-model head.
    ids : list of int
        The prompt.
    generation : GenerationSettings
    piece : int, optional
        Tokens of the prompt per pass.

    Notes
    -----
    The global random state is as before afterwards. Penalties and filters that the model's own
    generation settings may hold are off: what is noted in the trace is all that was applied.
    """
    torch, transformers = require("torch"), require("transformers")
    batch = torch.tensor([ids], device=_input_device(network))
    own = network.generation_config
    choice = {"do_sample": False}
    if generation.sampled:
        choice = {"do_sample": True, "top_k": 0, "temperature": generation.temperature or 1.0}
        choice["top_p"] = generation.top_p or 1.0
    settings = transformers.GenerationConfig(
        max_new_tokens=generation.new_tokens + 1,
        eos_token_id=own.eos_token_id,
        pad_token_id=own.pad_token_id if own.pad_token_id is not None else _first(own.eos_token_id),
        prefill_chunk_size=piece if piece is not None and piece < len(ids) else None,
        num_beams=1,
        repetition_penalty=1.0,
        no_repeat_ngram_size=0,
        **choice,
    )
    devices = [batch.device] if batch.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        torch.manual_seed(generation.seed)
        mask = torch.ones_like(batch)
        network.generate(batch, attention_mask=mask, generation_config=settings)


def _first(token_ids):
    return token_ids[0] if isinstance(token_ids, list) and token_ids else token_ids


def _input_device(network):
    """Where the embeddings are; weights that are offloaded have their hooks bring the input."""
    device = network.get_input_embeddings().weight.device
    return "cpu" if device.type == "meta" else device
