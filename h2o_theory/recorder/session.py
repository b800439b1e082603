"""The state of one recording: every attention call is placed, checked and queued for disk."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from h2o_theory.errors import RecordingRefused
from h2o_theory.recorder.call import Heads, arithmetic_of, call_of, cut, require_options
from h2o_theory.recorder.placement import ONE_SEQUENCE, History, place
from h2o_theory.recorder.sequence import RecordedSequence
from h2o_theory.recorder.turns import Turns
from h2o_theory.recorder.visibility import read_mask
from h2o_theory.trace import LayerSpec

if TYPE_CHECKING:
    import torch

    from h2o_theory.recorder.settings import Settings

__all__ = ["Session"]


class Session:
    """Collects a batch of sequences, in one forward pass or several with a growing KV cache.

    Every row is placed by counting: a layer's next call must bring exactly the tokens of the
    current pass, its keys must reach back to token 0 (or as far as its sliding window), and the
    mask must show each row its own token last. A row that does not see itself is padding and is
    dropped. A second sequence, a rolled-back cache or one that changes its past break one of
    these and are refused.

    The session holds no reference to the model.

    Parameters
    ----------
    settings : Settings
    open_sequence : callable (index, count) -> emit
        Called once per sequence of the batch when the first pass begins; ``emit`` takes the
        segments of that sequence.

    Attributes
    ----------
    sequences : list of RecordedSequence
    pass_lengths : list of int
        Tokens per pass, padding included.
    layer_specs : dict of int to LayerSpec
    """

    def __init__(
        self, settings: Settings, open_sequence: Callable[[int, int], Callable[..., None]]
    ) -> None:
        self.settings = settings
        self.sequences, self.pass_lengths, self.layer_specs = [], [], {}
        self._open_sequence = open_sequence
        self.turns = Turns()
        self._ids, self._own, self._padded = None, None, None
        self._earlier = None
        self._reached = dict.fromkeys(settings.layers, 0)
        self._history, self._placed = History(), {}
        self._failure = None

    @contextlib.contextmanager
    def _noting_failure(self):
        """Remember an error: one that the user's code swallows still spoils the recording."""
        try:
            yield
        except BaseException as error:
            self._failure = error
            raise

    def begin_pass(self, token_ids: torch.Tensor) -> None:
        """Note the tokens [batch, n] that the model is about to embed."""
        with self._noting_failure():
            if token_ids.ndim != 2 or 0 in token_ids.shape:
                raise RecordingRefused(
                    "the model embeds something other than a batch of token ids",
                    got=f"shape {tuple(token_ids.shape)}",
                    expected="[batch, tokens]",
                )
            if not self.pass_lengths:
                self._open(token_ids.shape[0])
            elif token_ids.shape[0] != len(self.sequences):
                raise RecordingRefused(
                    "the number of sequences changed",
                    got=token_ids.shape[0],
                    expected=len(self.sequences),
                    hint=ONE_SEQUENCE,
                )
            self._end_pass()
            self._ids, self._own = token_ids.detach().cpu().numpy(), None
            self._padded = self.turns.padded(self._ids)
            self._placed.clear()
            self.pass_lengths.append(token_ids.shape[1])

    def _open(self, count):
        for index in range(count):
            emit = self._open_sequence(index, count)
            self.sequences.append(RecordedSequence(self.settings, emit))
        self._earlier = np.zeros((count, 0), dtype=bool)

    def begin_turn(self, assistant: Any, custom: Any) -> None:
        """``generate`` was called, see :class:`~h2o_theory.recorder.turns.Turns`."""
        self.turns.begin(assistant, custom)

    def follows(self, generation_config: Any) -> bool:
        """Whether the turn can be followed step by step; refuses one that takes steps back."""
        with self._noting_failure():
            return self.turns.follows(generation_config)

    def require_call(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        inner: str,
        options: Mapping[str, Any],
    ) -> None:
        """Refuse a call that a trace cannot reproduce, before it runs."""
        with self._noting_failure():
            require_options(f"layer {layer}", inner, options, query.device.type)
            if key.shape[1] <= self.settings.kv_heads[-1]:
                raise RecordingRefused(
                    "the layer has fewer kv_heads than the model's configuration says",
                    where=f"layer {layer}",
                    got=key.shape[1],
                )
            got = (query.shape[0], self._reached[layer] + query.shape[2])
            expected = (len(self.sequences), sum(self.pass_lengths))
            if got != expected:
                raise RecordingRefused(
                    "the rows do not match the tokens that were embedded",
                    where=f"layer {layer}",
                    got=f"{got[0]} sequences up to token {got[1]}",
                    expected=f"{expected[0]} up to token {expected[1]}",
                    hint="Pass input_ids to the model, not embeddings computed elsewhere",
                )

    def capture(
        self,
        layer: int,
        *,
        tensors: tuple[torch.Tensor, ...],
        mask: torch.Tensor | None,
        output: torch.Tensor,
        inner: str,
        options: Mapping[str, Any],
        causal: bool,
    ) -> None:
        """Store one attention call's new rows after checking that they reproduce its output.

        Parameters
        ----------
        layer : int
        tensors : tuple of torch.Tensor
            Query [batch, q_heads, n, d], key [batch, kv_heads, m, d] and value [.., m, dv].
        mask : torch.Tensor or None
        output : torch.Tensor [batch, n, q_heads, dv]
        inner : str
        options : dict
            What else the model passed: scaling, softcap, s_aux, sliding_window.
        causal : bool
            Whether the inner attention hides the future by itself.
        """
        with self._noting_failure():
            query, key, value, output = (part.detach() for part in (*tensors, output))
            arithmetic = arithmetic_of(options)
            offset, placed = self._place(layer, query, key, mask, inner, causal, arithmetic.window)
            self._history.check(layer, key, offset, sum(self.pass_lengths))
            heads = Heads(self.settings.kv_heads, query.shape[1], key.shape[1])
            if arithmetic.sinks is not None:
                arithmetic = replace(arithmetic, sinks=cut(arithmetic.sinks, heads.q, 0))
            self._note_layer(layer, heads, query, value, arithmetic)
            for index, (sequence, spot) in enumerate(zip(self.sequences, placed, strict=True)):
                if len(spot.rows):
                    parts = (part[index] for part in (query, key, value, output))
                    sequence.add(call_of(layer, spot, heads, *parts, inner, arithmetic))
            self._reached[layer] += query.shape[2]
            self._tell_progress()

    def finish(self) -> None:
        """Queue what is still buffered; refuse a recording that is empty or incomplete."""
        if self._failure is not None:
            raise self._failure
        if not self.pass_lengths:
            raise RecordingRefused(
                "nothing was recorded",
                got="no forward pass inside the with-block",
                hint="Call the model inside the block",
            )
        self._end_pass()
        for index, sequence in enumerate(self.sequences):
            if not sequence.token_ids:
                raise RecordingRefused("a sequence holds nothing but padding", where=index)
            sequence.flush()

    def _end_pass(self):
        """Refuse a pass that a layer missed; take the tokens of the pass into their sequences."""
        if self._ids is None:
            return
        late = [layer for layer, at in self._reached.items() if at != sum(self.pass_lengths)]
        if late:
            raise RecordingRefused(
                "a layer did not report in the last forward pass",
                where=f"layer {late[0]}",
                got=f"{self._reached[late[0]]} rows",
                expected=f"{sum(self.pass_lengths)} rows",
            )
        for sequence, ids, own in zip(self.sequences, self._ids, self._own, strict=True):
            sequence.token_ids.extend(ids[own].tolist())
            if len(self.pass_lengths) == 1:
                sequence.prompt_length = len(sequence.token_ids)
        self._earlier = np.concatenate([self._earlier, self._own], axis=1)
        self._ids = None

    def _place(self, layer, query, key, mask, inner, causal, window):
        """The buffer's offset and where the call's rows stand.

        Layers that share a mask share the reading of it.
        """
        batch, rows, keys = query.shape[0], query.shape[2], key.shape[2]
        name = (id(mask), keys, causal, window)
        known = self._placed.get(name)
        if known is None or known[0]() is not mask:
            where = f"layer {layer}"
            seen = read_mask(mask, (batch, rows, keys), inner=inner, causal=causal, window=window)
            seen = replace(seen, count=np.where(self._padded[:, None], 0, seen.count))
            offset, placed = place(where, seen, self._earlier, keys, window)
            own = np.zeros((batch, rows), dtype=bool)
            for flags, spot in zip(own, placed, strict=True):
                flags[spot.rows] = True
            if self._own is not None and not np.array_equal(own, self._own):
                raise RecordingRefused("layers disagree on what is padding", where=where)
            self._own = own
            alive = (lambda: None) if mask is None else weakref.ref(mask)
            known = self._placed[name] = (alive, offset, placed)
        return known[1:]

    def _note_layer(self, layer, heads, query, value, arithmetic):
        store, sinks = self.settings.store, arithmetic.sinks
        spec = LayerSpec(
            layer=layer,
            q_heads=len(heads.q),
            kv_heads=len(heads.kv),
            head_dim=0 if store == "attention" else query.shape[3],
            value_dim=0 if store == "qk" else value.shape[3],
            scaling=arithmetic.scaling,
            softcap=arithmetic.softcap,
            sliding_window=arithmetic.window,
            sinks=None if sinks is None else tuple(sinks.float().tolist()),
            kv_head_ids=tuple(heads.kv.tolist()),
        )
        dtype = str(query.dtype).removeprefix("torch.")
        known = self.layer_specs.setdefault(layer, spec)
        if dtype != self.settings.model_dtype or known != spec:
            raise RecordingRefused(
                "the attention call does not fit the model or the calls before it",
                where=f"layer {layer}",
                got=f"{spec} in {dtype}",
                expected=f"{known} in {self.settings.model_dtype}",
            )

    def _tell_progress(self):
        if self.settings.progress is None:
            return
        told = step(self.pass_lengths, self._reached.values(), self.settings.expected)
        if told is not None:
            self.settings.progress(*told)


def step(
    pass_lengths: Sequence[int], reached: Collection[int], expected: int | None
) -> tuple[int, int, str] | None:
    """What to tell after a layer has reported.

    Parameters
    ----------
    pass_lengths : list of int
        Tokens of each pass so far.
    reached : collection of int
        Tokens that each recorded layer has reported.
    expected : int or None
        Tokens there will be, where that is known.

    Returns
    -------
    tuple (done, total, label) or None
        Layers of a pass over several tokens; for single-token passes the tokens from the first
        of them on, once all layers have reported, and None until then.
    """
    stop, rows = sum(pass_lengths), pass_lengths[-1]
    done = sum(at == stop for at in reached)
    if rows > 1:
        return done, len(reached), f"tokens {stop - rows} to {stop - 1}, layers"
    if done < len(reached):
        return None
    before = sum(pass_lengths[: pass_lengths.index(1)])
    total = stop if expected is None else max(stop, expected)
    return stop - before, total - before, "tokens one at a time"
