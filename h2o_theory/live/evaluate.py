"""Loss of a text under eviction, token by token, and its distance from the full cache."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from h2o_theory.annotations import Progress
from h2o_theory.budgets import BudgetLike
from h2o_theory.dependencies import require
from h2o_theory.engine.admission import Run
from h2o_theory.errors import TextError
from h2o_theory.live.admission import admit_one, network_of, require_context, require_prediction
from h2o_theory.live.loop import CHUNK, Transform, following, require_chunk, run_loop
from h2o_theory.live.stream import PIECE, as_token_ids, piece_of, stream_logits
from h2o_theory.policies import PolicyLike

__all__ = [
    "FullRun",
    "LiveResult",
    "evaluate",
    "evaluate_following",
    "evaluate_run",
    "full_run",
    "read_whole",
    "require_full_run",
    "visible_sizes",
]


@dataclass(frozen=True)
class LiveResult:
    """What a model made of a text while it forgot.

    Attributes
    ----------
    losses : float64 [T]
        Minus the log-probability of token t given what was left of the tokens before it, nats;
        NaN for token 0, which nothing predicts.
    first : int
        The first token whose prediction counts: 1, or the one after the prefill's last row.
    evicted_at : int64 [layers, kv_heads, T]
        The step at which each token left, T for never.
    sizes : int64 [T]
        Entries visible at each step, all layers and kv_heads together.
    entry_bytes : int
        Bytes of one entry, key and value, of one kv_head.
    held_bytes : int
        Largest number of bytes of keys and values really held by the layers, between pieces and
        within. What is kept aside for a policy to look at (raw rows, tensors) is not among them.
    agreement, kl : float64 [T]
        For the prediction made at row t: whether its most probable token is that of the full
        cache, and KL(full || evicted) of the distributions, nats. NaN without a reference.
    """

    losses: np.ndarray
    first: int
    evicted_at: np.ndarray
    sizes: np.ndarray
    entry_bytes: int
    held_bytes: int
    agreement: np.ndarray
    kl: np.ndarray

    @property
    def scored(self):
        """The losses that count, float64 [n]."""
        return self.losses[self.first :]

    @property
    def loss(self):
        """Mean loss of the scored tokens, nats."""
        return float(self.scored.mean())

    @property
    def perplexity(self):
        """exp of the mean loss."""
        return math.exp(self.loss)

    @property
    def peak_kv_bytes(self):
        """Bytes of keys and values visible at the largest step."""
        return int(self.sizes.max()) * self.entry_bytes


class FullRun:
    """The predictions of the full cache for one text, kept to compare others with.

    The log-probabilities live in an unnamed temporary file: 4 T x vocabulary bytes.

    Attributes
    ----------
    losses : float64 [T]
        See :class:`LiveResult`.
    sizes : int64 [T]
        Entries visible at each step, all layers and kv_heads together.
    kv_bytes : int
        Bytes of keys and values at the end.
    """

    def __init__(self, losses, log_probabilities, cache):
        self.losses = losses
        self._log_probabilities = log_probabilities
        heads = sum(layer.keys.shape[1] for layer in cache.layers)
        self.sizes = heads * np.arange(1, len(losses) + 1)
        self.kv_bytes = sum(
            part.numel() * part.element_size()
            for layer in cache.layers
            for part in (layer.keys, layer.values)
        )

    def compare(self, start, log_probabilities):
        """Agreement and KL(full || other) of the predictions made at rows ``start ..``, [n]."""
        torch = require("torch")
        stop = start + len(log_probabilities)
        full = torch.from_numpy(np.array(self._log_probabilities[start:stop]))
        other = log_probabilities.cpu()
        divergence = (full.exp() * (full - other)).sum(dim=-1, dtype=torch.float64)
        same = full.argmax(dim=-1) == other.argmax(dim=-1)
        return same.double().numpy(), divergence.clamp_min(0.0).numpy()


def full_run(model, ids, *, piece=PIECE, progress=None):
    """Run a text with the full cache and the model's own attention; keeps all predictions.

    Parameters
    ----------
    model : transformers.PreTrainedModel or LoadedModel
    ids : token ids [T] or [1, T]
    piece : int
        Tokens of one forward pass.
    progress : callable (done, total, label), optional

    Returns
    -------
    FullRun

    Raises
    ------
    TextError
        For fewer than two tokens.
    BadArgument
        For more tokens than the model's context.
    """
    model, ids = network_of(model), _to_text(ids)
    require_full_run(model, len(ids))
    return read_whole(model, ids, piece=piece, progress=progress)


def read_whole(
    model: Any, ids: np.ndarray, *, piece: int = PIECE, progress: Progress | None = None
) -> FullRun:
    """:func:`full_run` of a text that was found to fit the model."""
    import tempfile

    from transformers import DynamicCache

    losses, kept = np.full(len(ids), np.nan), None
    file = tempfile.TemporaryFile()
    cache = DynamicCache()
    for start, logits in stream_logits(model, ids, cache, piece, progress, "full cache"):
        predicted = _log_probabilities(logits)
        if kept is None:
            kept = np.memmap(file, np.float32, "w+", shape=(len(ids), predicted.shape[1]))
        kept[start : start + len(predicted)] = predicted.cpu().numpy()
        _note_losses(losses, ids, start, predicted)
    return FullRun(losses, kept, cache)


def require_full_run(model: Any, tokens: int) -> None:
    """Raise BadArgument if there is no full cache to compare with: T is above the context."""
    hint = "No full cache exists there: the experiment streaming compares policies with each other"
    require_context(model, tokens, hint)


def evaluate(
    model: Any,
    ids: Any,
    policy: PolicyLike,
    budget: BudgetLike,
    *,
    prefill: int = 0,
    positions: str = "original",
    seed: int = 0,
    transform: Transform | None = None,
    reference: FullRun | None = None,
    chunk: int = CHUNK,
    piece: int = PIECE,
    progress: Progress | None = None,
) -> LiveResult:
    """Loss of a text while a policy evicts inside the model, in one teacher-forced pass.

    Exact: the losses are those of a model that reads the text token by token with a KV cache
    that really shrinks (:func:`~h2o_theory.live.generate` does that).

    Parameters
    ----------
    model : transformers.PreTrainedModel or LoadedModel
    ids : token ids [T] or [1, T]
    policy, budget, prefill, positions, seed, transform, chunk
        As for :func:`~h2o_theory.live.closed_loop`.
    reference : FullRun, optional
        To measure agreement and KL against, see :func:`full_run`.
    piece : int
        Tokens of one forward pass; a policy whose set serves all layers makes it 1.
    progress : callable (done, total, label), optional

    Returns
    -------
    LiveResult

    Raises
    ------
    TextError
        For fewer than two tokens.
    BadArgument
        If the prefill leaves no prediction to score.
    Others as ``closed_loop``.
    """
    model, ids = network_of(model), _to_text(ids)
    run = admit_one(
        model, policy, budget, tokens=len(ids), prefill=prefill, seed=seed, positions=positions
    )
    require_prediction(run.prefill, len(ids))
    require_chunk(chunk)
    options = {"transform": transform, "chunk": chunk, "piece": piece}
    return evaluate_run(model, ids, run, reference=reference, progress=progress, **options)


def evaluate_run(
    model: Any,
    ids: np.ndarray,
    run: Run,
    *,
    transform: Transform | None = None,
    reference: FullRun | None = None,
    chunk: int = CHUNK,
    piece: int = PIECE,
    progress: Progress | None = None,
) -> LiveResult:
    """:func:`evaluate` of a run that was admitted, with the same results."""
    loop = run_loop(model, run, transform=transform, chunk=chunk)
    piece = piece_of(run.policy, piece)
    return _read_in_loop(loop, model, ids, run.prefill, reference, piece, progress)


def evaluate_following(
    model: Any,
    ids: Any,
    choosers: Callable,
    *,
    reference: FullRun | None = None,
    piece: int = PIECE,
    progress: Progress | None = None,
) -> LiveResult:
    """:func:`evaluate` with anything that decides, see :func:`~h2o_theory.live.loop.following`."""
    model, ids = network_of(model), _to_text(ids)
    loop = following(model, choosers, tokens=len(ids))
    return _read_in_loop(loop, model, ids, 0, reference, piece, progress)


def _read_in_loop(loop, model, ids, prefill, reference, piece, progress):
    tokens, first = len(ids), prefill + 1
    losses, agreement, kl = (np.full(tokens, np.nan) for _ in range(3))
    with loop as live:
        for start, logits in stream_logits(model, ids, live.cache, piece, progress):
            predicted = _log_probabilities(logits)
            _note_losses(losses, ids, start, predicted)
            if reference is not None:
                rows = slice(start, start + len(predicted))
                agreement[rows], kl[rows] = reference.compare(start, predicted)
        evicted_at = live.evicted_at
        return LiveResult(
            losses=losses,
            first=first,
            evicted_at=evicted_at,
            sizes=visible_sizes(evicted_at),
            entry_bytes=live.entry_bytes(),
            held_bytes=live.peak_bytes(),
            agreement=agreement,
            kl=kl,
        )


def visible_sizes(evicted_at: np.ndarray) -> np.ndarray:
    """Entries visible at each step, summed over all but the last axis of schedules [.., T]."""
    tokens = evicted_at.shape[-1]
    leaving = np.bincount(np.minimum(evicted_at, tokens).ravel() + 1, minlength=tokens + 2)
    arriving = np.arange(1, tokens + 1) * (evicted_at.size // tokens)
    return arriving - np.cumsum(leaving)[:tokens]


def _to_text(ids):
    ids = as_token_ids(ids)
    if len(ids) < 2:
        raise TextError("ids must be at least 2 tokens, or nothing can be predicted", got=len(ids))
    return ids


def _log_probabilities(logits):
    torch = require("torch")
    return torch.log_softmax(logits.float(), dim=-1)


def _note_losses(losses, ids, start, predicted):
    """Row t of the predictions is about token t + 1."""
    torch = require("torch")
    targets = torch.from_numpy(ids[start + 1 : start + 1 + len(predicted)]).to(predicted.device)
    chosen = predicted[: len(targets)].gather(1, targets[:, None])[:, 0]
    losses[start + 1 : start + 1 + len(targets)] = -chosen.double().cpu().numpy()
