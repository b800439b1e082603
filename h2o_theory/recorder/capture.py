"""``record``: the context manager that turns a model's forward pass into a trace."""

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

from h2o_theory.errors import BadArgument
from h2o_theory.recorder.background import BackgroundWriter
from h2o_theory.recorder.dependencies import require
from h2o_theory.recorder.admission import check_layers, check_model
from h2o_theory.recorder.models import DTYPES, LoadedModel
from h2o_theory.recorder.provenance import describe
from h2o_theory.recorder.registration import intercepted
from h2o_theory.recorder.selfcheck import TOLERANCE
from h2o_theory.recorder.session import Session, Settings
from h2o_theory.trace import TraceWriter

__all__ = ["Recording", "RecordingReport", "record"]

CHECK_ROWS = 4
"""Rows recomputed per call and layer: with 4, under 2 % of a forward pass over 512 tokens."""


@dataclass(frozen=True)
class RecordingReport:
    """What a finished recording holds and how well it was verified.

    Attributes
    ----------
    rows : int
        Query rows of each layer, the length T of the sequence.
    layers : tuple of int
    bytes : int
        Size of the trace on disk.
    check_error : dict of int to float
        Layer -> largest relative error of an attention output recomputed from the captured
        tensors, which are the stored ones unless another dtype was asked for.
    storage_error : dict of int to float
        The same, recomputed from tensors rounded to a storage dtype other than the model's;
        empty otherwise.
    checked_rows : int
        Rows recomputed, all layers together, each for every query head.
    tolerance : float
        The relative error that would have been refused.
    seconds : float
        Wall time of the with-block, the model's own work and the writing included.
    """

    rows: int
    layers: tuple
    bytes: int
    check_error: dict
    storage_error: dict
    checked_rows: int
    tolerance: float
    seconds: float

    def __str__(self):
        worst = max(self.check_error.values())
        return (
            f"recorded {self.rows} tokens in {len(self.layers)} layers, {self.bytes / 1e6:.1f} MB, "
            f"in {self.seconds:.1f} s; {self.checked_rows} rows recomputed, largest relative error "
            f"{worst:.1e} (accepted: {self.tolerance:g})"
        )


class Recording:
    """What ``record`` yields.

    Attributes
    ----------
    path : Path
        Where the trace is once the block has ended.
    report : RecordingReport or None
        None until then.
    """

    def __init__(self, path):
        self.path, self.report = path, None

    def __repr__(self):
        state = "recording" if self.report is None else f"{self.report.rows} rows"
        return f"<Recording {self.path}: {state}>"


@contextlib.contextmanager
def record(
    model,
    out,
    *,
    layers=None,
    store="qkv",
    dtype="model",
    tokenizer=None,
    text=None,
    token_strings=False,
    self_check_rows=CHECK_ROWS,
    provenance=None,
    overwrite=False,
    progress=None,
):
    """Record the attention of every forward pass inside the block as one trace.

    The model computes with its own attention (sdpa or eager); its inputs, queries and keys after
    rotary embedding and keys and values before they are repeated for grouped queries, are copied
    on the way. Logits are bit for bit those without recording. No attention matrix is built:
    memory and disk grow with T d, not with T^2.

    One sequence of tokens, batch size 1: in one pass, in chunks, or prompt and generated tokens
    with a growing KV cache. Tested families: LLaMA, OPT, GPT-NeoX.

    In every recorded layer a few rows of each call are recomputed from what was captured and
    compared with what the model's attention returned, see
    :class:`~h2o_theory.recorder.selfcheck.SelfCheck`. The trace appears at ``out`` only after
    all of them agreed and the block ended; on any error nothing is left.

    Parameters
    ----------
    model : transformers.PreTrainedModel or LoadedModel
    out : path
        Folder of the trace; must not exist, unless ``overwrite``.
    layers : iterable of int, optional
        Layers to record; all by default.
    store : {"qkv", "qk"}
        Without values the trace is smaller and has no output error.
    dtype : {"model", "float32", "float16", "bfloat16"}
        Storage dtype; the model's own by default, which loses nothing. What a coarser one
        loses is measured on the checked rows and reported.
    tokenizer : transformers tokenizer, optional
        Needed for ``token_strings``; that of a LoadedModel by default.
    text : dict, optional
        Provenance of the text, such as ``{"name": ...}``.
    token_strings : bool
        Store each token as the tokenizer decodes it on its own; off, a trace holds token ids only.
    self_check_rows : int
        Rows to recompute per call and layer, at least 1.
    provenance : dict, optional
        Entries for the trace's description of the model, over those found in the model.
    overwrite : bool
        Replace a trace at ``out``, at the very end.
    progress : callable (done, total, label), optional
        Called after each recorded layer of each pass.

    Yields
    ------
    Recording
        Its ``report`` is filled in when the block ends.

    Raises
    ------
    OutputExists
        On entry, if ``out`` is taken.
    BadArgument, OutOfRange, UnsupportedModel, MissingDependency
        On entry, for arguments or a model that cannot be recorded.
    RecordingRefused
        Where it happens, for a second sequence, padding, a cache that changes its past, or a
        failed self-check; at the end, if no forward pass ran.

    Notes
    -----
    O(T d) bytes per layer on disk. In memory, besides the layer being captured, at most four
    segments, each of 8 MiB and at most one layer more.
    """
    if isinstance(model, LoadedModel):
        tokenizer = tokenizer or model.tokenizer
        provenance = {**model.provenance(), **(provenance or {})}
        model = model.model
    _check_arguments(store, dtype, self_check_rows, token_strings, tokenizer)
    modules = check_model(model)
    settings = _settings(model, modules, layers, store, dtype, self_check_rows, progress)
    inner = model.config._attn_implementation
    started = time.perf_counter()
    with TraceWriter(out, overwrite=overwrite) as writer, BackgroundWriter(writer) as queue:
        session = Session(settings, queue)
        recording = Recording(Path(out))
        chosen = [modules[layer] for layer in settings.layers]
        with intercepted(model, chosen, session), _watching_tokens(model, session):
            yield recording
        session.finish()
        queue.finish()
        strings = _decode_each(tokenizer, session.token_ids) if token_strings else None
        spec = describe(model, inner, session, strings, text or {}, provenance or {})
        recording.path = writer.commit(spec)
    recording.report = RecordingReport(
        rows=len(session.token_ids),
        layers=settings.layers,
        bytes=sum(file.stat().st_size for file in recording.path.iterdir()),
        check_error=dict(sorted(session.checks.errors.items())),
        storage_error=dict(sorted(session.checks.storage_errors.items())),
        checked_rows=session.checks.rows,
        tolerance=TOLERANCE[settings.model_dtype],
        seconds=time.perf_counter() - started,
    )


def _check_arguments(store, dtype, self_check_rows, token_strings, tokenizer):
    if store not in ("qkv", "qk"):
        raise BadArgument("unknown content", where="store", got=store, expected="qkv or qk")
    if dtype not in ("model", *DTYPES):
        raise BadArgument(
            "unknown dtype", where="dtype", got=dtype, expected=" or ".join(("model", *DTYPES))
        )
    if not isinstance(self_check_rows, int) or self_check_rows < 1:
        raise BadArgument(
            "at least one row must be checked",
            where="self_check_rows",
            got=self_check_rows,
            expected="an integer from 1",
        )
    if token_strings and tokenizer is None:
        raise BadArgument(
            "token strings need a tokenizer", where="token_strings", hint="Pass tokenizer="
        )


def _settings(model, modules, layers, store, dtype, self_check_rows, progress):
    require("torch")
    own = str(model.dtype).removeprefix("torch.")
    if own not in DTYPES:
        raise BadArgument(
            "the model's dtype cannot be recorded",
            where="model",
            got=own,
            expected=" or ".join(DTYPES),
        )
    return Settings(
        layers=check_layers(layers, len(modules)),
        store=store,
        model_dtype=own,
        dtype=own if dtype == "model" else dtype,
        check_rows=self_check_rows,
        progress=progress,
    )


@contextlib.contextmanager
def _watching_tokens(model, session):
    """Tell the session which token ids enter; every forward pass embeds them exactly once."""

    def note(module, args, kwargs):
        session.begin_pass(args[0] if args else kwargs["input"])

    hook = model.get_input_embeddings().register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


def _decode_each(tokenizer, token_ids):
    return tuple(tokenizer.decode([token]) for token in token_ids)
