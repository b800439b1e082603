"""``closed_loop``: the context manager in which a model forgets what a policy evicts."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from h2o_theory.budgets import BudgetLike
from h2o_theory.engine.admission import Run
from h2o_theory.errors import BadArgument, OutOfRange, RecordingRefused
from h2o_theory.live.admission import POSITIONS, admit_one, network_of, require_context
from h2o_theory.live.choosers import choosers_of
from h2o_theory.policies import PolicyLike
from h2o_theory.recorder.admission import recordable_modules
from h2o_theory.recorder.call import require_options
from h2o_theory.recorder.registration import intercepted
from h2o_theory.recorder.visibility import read_mask

__all__ = [
    "CHUNK",
    "ClosedLoop",
    "Transform",
    "closed_loop",
    "following",
    "require_chunk",
    "run_loop",
]

Transform: TypeAlias = Callable[[Any, Any], tuple[Any, Any]]
"""Changes the keys and values that enter the cache."""

CHUNK = 64
"""Queries of a layer worked off together."""


class ClosedLoop:
    """What :func:`closed_loop` yields; it takes the place of the model's attention.

    Attributes
    ----------
    cache : transformers.Cache
        To be passed to the model as its KV cache, in every call.
    tokens : int
        The length T that was announced.
    """

    def __init__(self, choosers, tokens, chunk, rotation, transform, layers):
        from h2o_theory.live.cache import LiveCache
        from h2o_theory.live.layer import LiveLayer, Scratch

        self.tokens, scratch = tokens, Scratch(tokens)
        self._rotation, self._transform = rotation, transform
        self._masks = {}
        self._layers = [
            LiveLayer(lambda heads, layer=layer: choosers(layer, heads), chunk, scratch)
            for layer in range(layers)
        ]
        self.cache = LiveCache(self._layers)

    @property
    def seen(self):
        """Tokens that the model has read."""
        return self._layers[-1].seen

    @property
    def evicted_at(self):
        """The step at which each token left, T for never: int64 [layers, kv_heads, T]."""
        schedules = []
        for layer in self._layers:
            by_head = {head: u.chooser.evicted_at for u in layer.units for head in u.heads}
            schedules.append([by_head[head] for head in sorted(by_head)])
        return np.array(schedules)

    def entry_bytes(self):
        """Bytes of one entry, key and value, of one kv_head."""
        unit = self._layers[0].units[0]
        return sum(part.shape[2] * part.element_size() for part in (unit.keys, unit.values))

    def held_bytes(self):
        """Bytes of keys and values held now, all layers, without what policies keep aside."""
        return sum(layer.held_bytes() for layer in self._layers)

    def peak_bytes(self):
        """Largest number of bytes each layer ever held, summed."""
        return sum(layer.peak_bytes for layer in self._layers)

    def require_call(self, layer, query, key, inner, options):
        """Refuse a call that the loop cannot take over."""
        require_options(f"layer {layer}", inner, options, query.device.type)
        rows, seen = query.shape[2], self._layers[layer].seen
        if query.shape[0] != 1:
            raise RecordingRefused(
                "more than one sequence at a time",
                where=f"layer {layer}",
                got=f"a batch of {query.shape[0]}",
            )
        if seen + rows > self.tokens:
            raise OutOfRange(
                "the sequence is longer than announced",
                where=f"layer {layer}",
                got=f"{seen + rows} tokens",
                expected=f"at most {self.tokens}",
                hint="Pass tokens= of the whole sequence, generated tokens included",
            )
        if key.shape[2] != rows:
            raise RecordingRefused(
                "the model keeps a KV cache of its own",
                where=f"layer {layer}",
                got=f"{key.shape[2]} keys for {rows} queries",
                hint="Pass the loop's cache to the model in every call",
            )

    def _read(self, layer, mask, shape, inner, causal):
        """:func:`read_mask`, once for all layers that are handed the same mask in a pass.

        The caller may hand one mask to many passes, and write to it in between.
        """
        if layer == 0:
            self._masks.clear()
        if mask is None:
            return read_mask(mask, shape, inner=inner, causal=causal)
        # The mask is kept beside what was read, so that its id stays its own.
        if id(mask) not in self._masks:
            self._masks[id(mask)] = mask, read_mask(mask, shape, inner=inner, causal=causal)
        return self._masks[id(mask)][1]

    def compute(self, layer, *, tensors, mask, inner, options, causal):
        """The output [1, n, q_heads, dv] of one attention call over what may be seen."""
        from h2o_theory.live.layer import Arithmetic

        query, key, value = (part.detach()[0] for part in tensors)
        live, rows = self._layers[layer], query.shape[1]
        seen = self._read(layer, mask, (1, rows, live.seen + rows), inner, causal)
        own = live.seen + np.arange(rows)
        if (seen.last[0] != own).any() or (seen.count[0] != own - seen.first[0] + 1).any():
            raise RecordingRefused(
                "the visible keys are not those of one causal sequence",
                where=f"layer {layer}",
                hint="Run one sequence, from its first token, without padding",
            )
        if self._transform is not None:
            key, value = self._transform(key, value)
        arithmetic = Arithmetic(
            options["scaling"], options.get("softcap"), options.get("s_aux"), self._rotation
        )
        return live.attend(query, key, value, seen.first[0], arithmetic)[None]


@contextlib.contextmanager
def closed_loop(
    model: Any,
    policy: PolicyLike,
    budget: BudgetLike,
    *,
    tokens: int,
    prefill: int = 0,
    positions: str = "original",
    seed: int = 0,
    transform: Transform | None = None,
    chunk: int = CHUNK,
) -> Iterator[ClosedLoop]:
    r"""Let a policy evict keys and values inside the model for the length of the block.

    For each layer and kv_head, query t attends over :math:`S_t = R_{t-1} \cup \{t\}` alone, the
    policy sees that row, and if :math:`|S_t| = k` one entry leaves for good. So the deeper layers
    and later tokens see what eviction did, unlike in a replay of recorded rows::

        with closed_loop(model, "h2o", "20%", tokens=512) as loop:
            model(ids, past_key_values=loop.cache)             # or model.generate(...)

    The sequence may come in any pieces: one pass, chunks, or token by token. Any online policy of
    the registry runs, and any :class:`~h2o_theory.PlainPolicy`. One whose set serves all layers
    takes one token at a time. One that looks at raw rows is shown the softmax over every past key,
    for which the evicted ones are kept aside, as the released simulations by masks do.

    Parameters
    ----------
    model : transformers.PreTrainedModel or LoadedModel
    policy : str, Policy or PlainPolicy
    budget : int, str, dict, array [layers, kv_heads], BudgetMatrix or callable
        Entries a query sees, its own included; ``"20%"`` is a share of ``tokens``. As for
        :func:`h2o_theory.replay`: a matrix gives each kv_head its own, and so does the rule
        ``"pyramid:20%"``. A rule that reads rows is called on a trace first, and its result given.
    tokens : int
        Length T of the whole sequence, generated tokens included.
    prefill : int
        The first rows see everything; one cut follows them.
    positions : {"original", "slot"}
        Whether a key keeps its position in the text, or counts its place within the cache (as
        StreamingLLM does): then keys are rotated anew for every query. A policy that asks for
        slots (``sink:positions=slot``) gets them.
    seed : int
    transform : callable (keys, values) -> (keys, values), optional
        Changes what enters the cache, such as :class:`~h2o_theory.live.quantise.Quantiser`.
    chunk : int
        Queries of a layer worked off together; the result does not depend on it.

    Yields
    ------
    ClosedLoop

    Raises
    ------
    BadArgument, BadBudget, UnknownName, OutOfRange
        See :func:`~h2o_theory.live.admission.admit_live`.
    UnsupportedModel
        If the model's attention cannot be intercepted, or its keys cannot be moved.
    RecordingRefused
        Where it happens, for a batch, padding, or a model run without the loop's cache.

    Notes
    -----
    O(T (k + B) d) time for each layer and query head, O(k d) memory for each layer and kv_head,
    O(B T) for the one at work.
    """
    run = admit_one(
        model, policy, budget, tokens=tokens, prefill=prefill, seed=seed, positions=positions
    )
    require_chunk(chunk)
    with run_loop(network_of(model), run, transform=transform, chunk=chunk) as loop:
        yield loop


@contextlib.contextmanager
def run_loop(
    model: Any, run: Run, *, transform: Transform | None = None, chunk: int = CHUNK
) -> Iterator[ClosedLoop]:
    """:func:`closed_loop` of a run that was admitted."""
    choosers = choosers_of(model, run)
    with _taken_over(model, choosers, run.length, run.positions, transform, chunk) as loop:
        yield loop


@contextlib.contextmanager
def following(
    model: Any,
    choosers: Callable,
    *,
    tokens: int,
    positions: str = "original",
    transform: Transform | None = None,
    chunk: int = CHUNK,
) -> Iterator[ClosedLoop]:
    """:func:`closed_loop` with anything that decides what is seen.

    Parameters
    ----------
    model : transformers.PreTrainedModel or LoadedModel
    choosers : callable (layer, kv_heads) -> list of (tuple of int, chooser)
        The kv_heads of a layer that share a retained set, and a chooser for each set, see
        :mod:`h2o_theory.live.chooser`. With positions by slot, what a row sees has to be known
        before the row is computed, as it is of caches and not of masks.
    tokens, positions, transform, chunk
        As for :func:`closed_loop`.

    Yields
    ------
    ClosedLoop
    """
    model = network_of(model)
    if positions not in POSITIONS:
        raise BadArgument(f"positions must be {' or '.join(POSITIONS)}", got=repr(positions))
    require_chunk(chunk)
    if positions == "original":
        require_context(model, tokens)
    with _taken_over(model, choosers, tokens, positions, transform, chunk) as loop:
        yield loop


@contextlib.contextmanager
def _taken_over(model, choosers, tokens, positions, transform, chunk):
    """The model with a loop in place of its attention."""
    modules, rotation = recordable_modules(model), None
    if positions == "slot":
        from h2o_theory.live.rotate import key_rotation

        rotation = key_rotation(model)
    loop = ClosedLoop(choosers, tokens, chunk, rotation, transform, len(modules))
    with intercepted(model, modules.values(), loop):
        yield loop


def require_chunk(chunk: int) -> None:
    """Raise BadArgument unless a layer works off at least one query at a time."""
    if chunk < 1:
        raise BadArgument("chunk must be at least 1", got=chunk)
