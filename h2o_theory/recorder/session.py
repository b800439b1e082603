"""The state of one recording: every attention call is placed, checked and queued for disk."""

import contextlib
import weakref
from dataclasses import dataclass

from h2o_theory.errors import RecordingRefused
from h2o_theory.recorder.buffer import SegmentBuffer, as_numpy, to_storage
from h2o_theory.recorder.call import (
    ONE_SEQUENCE,
    Call,
    refuse_non_causal,
    refuse_non_finite,
    refuse_options,
)
from h2o_theory.recorder.selfcheck import SelfCheck
from h2o_theory.recorder.visibility import visible_intervals
from h2o_theory.trace import LayerSpec

__all__ = ["Session", "Settings"]


@dataclass(frozen=True)
class Settings:
    """What to store and how strictly to check it.

    Attributes
    ----------
    layers : tuple of int
    store : {"qkv", "qk"}
    model_dtype, dtype : str
        Dtype of the model's tensors and of the stored ones.
    check_rows : int
        Rows recomputed per call and layer.
    progress : callable (done, total, label) or None
    """

    layers: tuple
    store: str
    model_dtype: str
    dtype: str
    check_rows: int
    progress: object = None


class Session:
    """Collects one sequence, in one forward pass or several with a growing KV cache.

    Every row is placed by counting: a layer's next call must bring exactly the tokens of the
    current pass, its keys must reach back to token 0, and the mask must show each row its own
    token last. Padding, a second sequence, a rolled-back or sliding cache break one of these
    and are refused.

    The session holds no reference to the model.

    Parameters
    ----------
    settings : Settings
    queue : object with ``add(tensors, start, stop, layers, dtypes)``
    """

    def __init__(self, settings, queue):
        self.settings = settings
        self.token_ids, self.pass_lengths, self.layer_specs = [], [], {}
        self.checks = SelfCheck(settings.model_dtype, settings.dtype, settings.check_rows)
        self._buffer = SegmentBuffer(queue, settings.dtype)
        self._reached = dict.fromkeys(settings.layers, 0)
        self._anchors, self._intervals = {}, {}
        self._failure = None

    @contextlib.contextmanager
    def _noting_failure(self):
        """Remember an error: one that the user's code swallows still spoils the recording."""
        try:
            yield
        except BaseException as error:
            self._failure = error
            raise

    def begin_pass(self, token_ids):
        """Note the tokens [1, n] that the model is about to embed."""
        with self._noting_failure():
            if token_ids.ndim != 2 or token_ids.shape[0] != 1:
                raise RecordingRefused(
                    "more than one sequence at a time",
                    got=f"token ids of shape {tuple(token_ids.shape)}",
                    expected="[1, tokens]",
                    hint=ONE_SEQUENCE,
                )
            self._check_pass_complete()
            self._intervals.clear()
            self.token_ids.extend(token_ids[0].tolist())
            self.pass_lengths.append(token_ids.shape[1])

    def check_call(self, layer, query, key, inner, options):
        """Refuse a call that a trace cannot reproduce, before it runs."""
        with self._noting_failure():
            refuse_options(f"layer {layer}", inner, options)
            if query.shape[0] != 1:
                raise RecordingRefused(
                    "more than one sequence at a time",
                    where=f"layer {layer}",
                    got=f"a batch of {query.shape[0]}",
                    hint=ONE_SEQUENCE,
                )
            self._place(layer, query.shape[2], key.shape[2])

    def capture(self, layer, *, tensors, mask, output, inner, options, implicit_causal):
        """Store one attention call's new rows after checking that they reproduce its output.

        Parameters
        ----------
        layer : int
        tensors : tuple of torch.Tensor
            Query [1, q_heads, n, d], key [1, kv_heads, m, d] and value [1, kv_heads, m, dv].
        mask : torch.Tensor or None
        output : torch.Tensor [1, n, q_heads, dv]
        inner : str
        options : dict
            What else the model passed: scaling, softcap, sliding_window.
        implicit_causal : bool
            See :func:`~h2o_theory.recorder.visibility.visible_intervals`.
        """
        with self._noting_failure():
            query, key, value, output = (part.detach()[0] for part in (*tensors, output))
            start, stop = self._place(layer, query.shape[1], key.shape[1])
            call = Call(
                layer, start, stop, query, key, value, output, inner, float(options["scaling"])
            )
            lo, hi = self._visible(call, mask, implicit_causal)
            self._note_layer(call, options)
            self._check_history(call)
            stored = {
                "q": to_storage(query, self.settings.dtype),
                "k": to_storage(key[:, start:stop], self.settings.dtype),
                "v": to_storage(value[:, start:stop], self.settings.dtype),
            }
            refuse_non_finite(layer, stored, self.settings.dtype)
            self.checks.check(call, stored, lo, hi, options.get("softcap"))
            arrays = {kind: as_numpy(stored[kind]) for kind in self.settings.store}
            self._buffer.add(layer, start, stop, {**arrays, "lo": lo, "hi": hi})
            self._reached[layer] = stop
            if self.settings.progress:
                done = sum(reached == stop for reached in self._reached.values())
                self.settings.progress(done, len(self._reached), f"layer {layer}")

    def finish(self):
        """Queue what is still buffered; refuse a recording that is empty or incomplete."""
        if self._failure is not None:
            raise self._failure
        if not self.token_ids:
            raise RecordingRefused(
                "nothing was recorded",
                got="no forward pass inside the with-block",
                hint="Call the model inside the block",
            )
        self._check_pass_complete()
        self._buffer.flush()

    def _check_pass_complete(self):
        late = [layer for layer, at in self._reached.items() if at != len(self.token_ids)]
        if late:
            raise RecordingRefused(
                "a layer did not report in the last forward pass",
                where=f"layer {late[0]}",
                got=f"{self._reached[late[0]]} rows",
                expected=f"{len(self.token_ids)} rows",
            )

    def _place(self, layer, rows, keys):
        """Token range of the rows of a call that a layer is about to add."""
        start = self._reached[layer]
        stop = start + rows
        if stop != len(self.token_ids):
            raise RecordingRefused(
                "the rows do not match the tokens that were embedded",
                where=f"layer {layer}",
                got=f"rows {start} to {stop}",
                expected=f"up to token {len(self.token_ids)}",
                hint="Pass input_ids to the model, not embeddings computed elsewhere",
            )
        if keys < stop:
            raise RecordingRefused(
                "the keys do not reach back to the first recorded token",
                where=f"layer {layer}",
                got=f"{keys} keys",
                expected=f"{stop}, one for each token so far",
                hint=ONE_SEQUENCE,
            )
        return start, stop

    def _visible(self, call, mask, implicit_causal):
        """Intervals of the call's rows; layers that share a mask share the reading of it."""
        keys = call.key.shape[1]
        name = (id(mask), call.start, call.stop, keys, implicit_causal)
        known = self._intervals.get(name)
        if known is None or known[0]() is not mask:
            lo, hi = visible_intervals(mask, call.rows, keys, implicit_causal=implicit_causal)
            refuse_non_causal(call, lo, hi)
            alive = (lambda: None) if mask is None else weakref.ref(mask)
            known = self._intervals[name] = (alive, lo, hi)
        return known[1:]

    def _note_layer(self, call, options):
        dtype = str(call.query.dtype).removeprefix("torch.")
        spec = LayerSpec(
            layer=call.layer,
            q_heads=call.query.shape[0],
            kv_heads=call.key.shape[0],
            head_dim=call.query.shape[2],
            value_dim=call.value.shape[2] if "v" in self.settings.store else 0,
            scaling=call.scaling,
            softcap=options.get("softcap"),
            sliding_window=options.get("sliding_window"),
        )
        known = self.layer_specs.setdefault(call.layer, spec)
        if dtype != self.settings.model_dtype or known != spec:
            raise RecordingRefused(
                "the attention call does not fit the model or the calls before it",
                where=f"layer {call.layer}",
                got=f"{spec} in {dtype}",
                expected=f"{known} in {self.settings.model_dtype}",
            )

    def _check_history(self, call):
        """The first and the latest earlier key must still be what was stored, bit for bit."""
        if call.start:
            earlier = call.key[:, [0, call.start - 1]]
            if not bool((earlier == self._anchors[call.layer]).all()):
                raise RecordingRefused(
                    "the KV cache changed keys that are already recorded",
                    where=f"layer {call.layer}",
                    hint="Record the finished sequence again in one forward pass",
                )
        self._anchors[call.layer] = call.key[:, [0, call.stop - 1]]
