"""``record``: the context manager that turns a model's forward pass into a trace."""

import contextlib
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from h2o_theory.errors import BadArgument
from h2o_theory.recorder.admission import check_kv_heads, check_layers, check_model
from h2o_theory.recorder.background import BackgroundWriter
from h2o_theory.recorder.destinations import Destinations
from h2o_theory.recorder.models import DTYPES, LoadedModel
from h2o_theory.recorder.plan import geometry, planned_spec
from h2o_theory.recorder.provenance import describe_sequence
from h2o_theory.recorder.registration import intercepted
from h2o_theory.recorder.selfcheck import TOLERANCE
from h2o_theory.recorder.session import Session, Settings

__all__ = ["STORES", "Recording", "RecordingReport", "choose_settings", "record"]

STORES = ("qkv", "qk", "attention")

CHECK_ROWS = 4
"""Rows recomputed per call and layer: with 4, under 2 % of a forward pass over 512 tokens."""


@dataclass(frozen=True)
class RecordingReport:
    """What a finished recording holds and how well it was verified.

    Attributes
    ----------
    sequences : int
        One, or the number of sequences of the batch.
    rows : int
        Query rows of each layer: the tokens of all sequences, padding not counted.
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

    sequences: int
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
        of = f" of {self.sequences} sequences" if self.sequences > 1 else ""
        return (
            f"recorded {self.rows} tokens{of} in {len(self.layers)} layers, "
            f"{self.bytes / 1e6:.1f} MB, in {self.seconds:.1f} s; {self.checked_rows} rows "
            f"recomputed, largest relative error {worst:.1e} (accepted: {self.tolerance:g})"
        )


class Recording:
    """What ``record`` yields.

    Attributes
    ----------
    path : Path
        Where the trace is once the block has ended; of a batch, the folder of its traces.
    paths : tuple of Path
        The trace of each sequence; empty while the block lasts.
    report : RecordingReport or None
        None until then.
    """

    def __init__(self, path):
        self.path, self.paths, self.report = path, (), None

    def __repr__(self):
        state = "recording" if self.report is None else f"{self.report.rows} rows"
        return f"<Recording {self.path}: {state}>"


@contextlib.contextmanager
def record(
    model,
    out,
    *,
    layers=None,
    kv_heads=None,
    store="qkv",
    dtype="model",
    tokens=None,
    prompt_length=None,
    generation=None,
    tokenizer=None,
    text=None,
    token_strings=False,
    self_check_rows=CHECK_ROWS,
    provenance=None,
    overwrite=False,
    resume=False,
    progress=None,
):
    """Record the attention of every forward pass inside the block.

    The model computes with its own attention (sdpa, eager or flash); its inputs, queries and keys
    after rotary embedding and keys and values before they are repeated for grouped queries, are
    copied on the way. Logits are bit for bit those without recording. No attention matrix is
    built: memory and disk grow with T d, not with T^2.

    One sequence or one batch of them: in one pass, in chunks, or prompts and generated tokens
    with a growing KV cache. Of a batch each sequence becomes a trace of its own, ``out/000000``,
    ``out/000001``, ..., without its padding, left or right: a row that the model's mask hides
    from itself is padding. What generation feeds to a sequence that has ended is dropped too.
    Families: see :data:`h2o_theory.recorder.FAMILIES`.

    In every recorded layer a few rows of each call are recomputed from what was captured and
    compared with what the model's attention returned, see
    :class:`~h2o_theory.recorder.selfcheck.SelfCheck`. A trace gets its name only after all of
    them agreed and the block ended.

    Parameters
    ----------
    model : transformers.PreTrainedModel or LoadedModel
    out : path
        Folder of the trace, or of the traces of a batch; must not exist, unless ``overwrite``.
    layers : iterable of int, optional
        Layers to record; all by default.
    kv_heads : iterable of int, optional
        The kv_heads of each layer to record, with the query heads they serve; all by default.
    store : {"qkv", "qk", "attention"}
        Without values the trace is smaller and has no output error. "attention" stores the rows
        themselves and values instead of queries and keys, O(T^2) bytes per head.
    dtype : {"model", "float32", "float16", "bfloat16"}
        Storage dtype; the model's own by default, which loses nothing (for attention rows
        float32). What a coarser one loses is measured on the checked rows and reported, but for
        attention rows.
    tokens : int, optional
        Length of the sequence, where known: a trace that would not fit on the disk is then
        refused before the model runs.
    prompt_length : int, optional
        Tokens that were given rather than generated; those of the first pass by default.
    generation : dict, optional
        How further tokens are chosen, noted in the trace: ``method``, ``seed``, ...
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
    resume : bool
        Go on with an unfinished recording of the same sequence; see ``TraceWriter``.
    progress : callable (done, total, label), optional
        Called after each recorded layer of each pass, and after each single-token pass.

    Yields
    ------
    Recording
        Its ``report`` is filled in when the block ends.

    Raises
    ------
    OutputExists, UnfinishedTrace
        On entry, if ``out`` is taken.
    DiskFull
        On entry, if ``tokens`` rows do not fit on the disk; later, if the disk is full.
    BadArgument, OutOfRange, UnsupportedModel, MissingDependency
        On entry, for arguments or a model that cannot be recorded.
    RecordingRefused
        Where it happens, for a second sequence after the first, a cache that changes its past, or
        a failed self-check; at the end, if no forward pass ran.

    Notes
    -----
    O(T d) bytes per layer on disk. In memory, besides the layer being captured, at most five
    segments, each of 8 MiB and at most one layer more, and one per further sequence of a batch.
    """
    if isinstance(model, LoadedModel):
        tokenizer = tokenizer or model.tokenizer
        provenance = {**model.provenance(), **(provenance or {})}
        model = model.model
    _check_arguments(store, dtype, self_check_rows, token_strings, tokenizer)
    modules = check_model(model)
    settings = choose_settings(
        model, layers=layers, kv_heads=kv_heads, store=store, dtype=dtype,
        check_rows=self_check_rows, progress=progress, expected=tokens,
    )  # fmt: skip
    inner = model.config._attn_implementation
    plan = planned_spec(model.config, settings, tokens)
    started = time.perf_counter()
    with (
        Destinations(out, overwrite=overwrite, resume=resume, plan=plan) as destinations,
        BackgroundWriter() as queue,
    ):
        session = Session(settings, partial(destinations.open, queue))
        recording = Recording(Path(out))
        chosen = [modules[layer] for layer in settings.layers]
        with intercepted(model, chosen, session), _watching_tokens(model, session):
            yield recording
        session.finish()
        queue.finish()
        describe = partial(
            describe_sequence, model, inner, session, text=text or {}, provenance=provenance or {},
            prompt_length=prompt_length, generation=generation or {},
            tokenizer=tokenizer if token_strings else None,
        )  # fmt: skip
        recording.paths = destinations.commit(map(describe, range(len(session.sequences))))
    recording.report = _report(recording.paths, session, time.perf_counter() - started)


def _report(paths, session, seconds):
    checks = [sequence.checks for sequence in session.sequences]
    return RecordingReport(
        sequences=len(checks),
        rows=sum(len(sequence.token_ids) for sequence in session.sequences),
        layers=session.settings.layers,
        bytes=sum(file.stat().st_size for path in paths for file in path.iterdir()),
        check_error=_largest(check.errors for check in checks),
        storage_error=_largest(check.storage_errors for check in checks),
        checked_rows=sum(check.rows for check in checks),
        tolerance=TOLERANCE[session.settings.model_dtype],
        seconds=seconds,
    )


def _largest(errors):
    """Layer -> largest error over several sequences."""
    largest = {}
    for of_sequence in errors:
        for layer, error in of_sequence.items():
            largest[layer] = max(error, largest.get(layer, 0.0))
    return dict(sorted(largest.items()))


def _check_arguments(store, dtype, self_check_rows, token_strings, tokenizer):
    if store not in STORES:
        raise BadArgument("unknown content", where="store", got=store, expected=" or ".join(STORES))
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


def choose_settings(
    model,
    *,
    layers=None,
    kv_heads=None,
    store="qkv",
    dtype="model",
    check_rows=CHECK_ROWS,
    progress=None,
    expected=None,
):
    """The :class:`Settings` of a recording, every choice checked against the model.

    Raises
    ------
    BadArgument, OutOfRange
    """
    own = str(model.dtype).removeprefix("torch.")
    if own not in DTYPES:
        raise BadArgument(
            "the model's dtype cannot be recorded",
            where="model",
            got=own,
            expected=" or ".join(DTYPES),
        )
    if dtype == "model":
        dtype = "float32" if store == "attention" else own
    generation = getattr(model, "generation_config", None)
    ends = getattr(generation, "eos_token_id", None)
    return Settings(
        layers=check_layers(layers, model.config.num_hidden_layers),
        kv_heads=check_kv_heads(kv_heads, geometry(model.config).kv_heads),
        store=store,
        model_dtype=own,
        dtype=dtype,
        check_rows=check_rows,
        end_tokens=frozenset([ends] if isinstance(ends, int) else ends or ()),
        padding=getattr(generation, "pad_token_id", None),
        progress=progress,
        expected=expected,
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
