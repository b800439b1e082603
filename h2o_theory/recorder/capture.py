"""``record``: the context manager that turns a model's forward pass into a trace."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from h2o_theory.annotations import PathLike, Progress
from h2o_theory.recorder.admission import recordable_modules
from h2o_theory.recorder.buffer import BackgroundWriter
from h2o_theory.recorder.destinations import Destinations
from h2o_theory.recorder.models import LoadedModel
from h2o_theory.recorder.provenance import describe_sequence
from h2o_theory.recorder.recording import Recording, report_of
from h2o_theory.recorder.registration import intercepted
from h2o_theory.recorder.session import Session
from h2o_theory.recorder.settings import (
    CHECK_ROWS,
    choose_settings,
    planned_spec,
    require_arguments,
)
from h2o_theory.recorder.turns import watching_turns

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["record"]


@contextlib.contextmanager
def record(
    model: PreTrainedModel | LoadedModel,
    out: PathLike,
    *,
    layers: Iterable[int] | None = None,
    kv_heads: Iterable[int] | None = None,
    store: str = "qkv",
    store_dtype: str = "model",
    tokens: int | None = None,
    prompt_length: int | None = None,
    generation: dict[str, Any] | None = None,
    tokenizer: Any = None,
    text_provenance: dict[str, Any] | None = None,
    token_strings: bool = False,
    self_check_rows: int = CHECK_ROWS,
    model_provenance: dict[str, Any] | None = None,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress | None = None,
) -> Iterator[Recording]:
    """Record the attention of every forward pass inside the block.

    The model computes with its own attention (sdpa, eager or flash); its inputs, queries and keys
    after rotary embedding and keys and values before they are repeated for grouped queries, are
    copied on the way. Logits are bit for bit those without recording. No attention matrix is
    built: memory and disk grow with T d, not with T^2.

    One sequence or one batch of them: in one pass, in pieces, or prompts and generated tokens
    with a growing KV cache. Of a batch each sequence becomes a trace of its own, ``out/000000``,
    ``out/000001``, ..., without its padding, left or right: a row that the model's mask hides
    from itself is padding. What ``generate`` feeds to a sequence that has ended is dropped too.
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
    store_dtype : {"model", "float32", "float16", "bfloat16"}
        Storage dtype; the model's own by default, which loses nothing (for attention rows
        float32). What a coarser one loses is measured on the checked rows and reported, but for
        attention rows.
    tokens : int, optional
        Length of the sequence, or of the longest of a batch, where known: traces that would not
        fit on the disk are then refused before the model runs.
    prompt_length : int, optional
        Tokens that were given rather than generated; those of the first pass by default.
    generation : dict, optional
        How further tokens are chosen, noted in the trace, as
        ``GenerationSettings.describe()`` gives it.
    tokenizer : transformers tokenizer, optional
        Needed for ``token_strings``; that of a LoadedModel by default.
    text_provenance : dict, optional
        Provenance of the text, such as ``{"name": ...}``.
    token_strings : bool
        Store each token as the tokenizer decodes it on its own; off, a trace holds token ids only.
    self_check_rows : int
        Rows to recompute per call and layer, at least 1.
    model_provenance : dict, optional
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
        On entry, if ``out`` is taken; of a batch, when its first pass begins.
    CannotWrite
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

    Examples
    --------
    >>> import tempfile, torch
    >>> from h2o_theory import open_trace, record
    >>> from h2o_theory.recorder.tiny import tiny_model
    >>> model, folder = tiny_model("llama"), tempfile.TemporaryDirectory()
    >>> with torch.no_grad(), record(model, folder.name + "/mine.trace") as recording:
    ...     logits = model(torch.tensor([[5, 6, 7, 8]])).logits
    >>> open_trace(recording.path).tokens
    4
    """
    if isinstance(model, LoadedModel):
        tokenizer = tokenizer or model.tokenizer
        model_provenance = {**model.provenance(), **(model_provenance or {})}
        model = model.model
    require_arguments(
        store=store, store_dtype=store_dtype, self_check_rows=self_check_rows,
        token_strings=token_strings, tokenizer=tokenizer, tokens=tokens,
        prompt_length=prompt_length,
    )  # fmt: skip
    modules = recordable_modules(model)
    settings = choose_settings(
        model, layers=layers, kv_heads=kv_heads, store=store, store_dtype=store_dtype,
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
        with (
            intercepted(model, chosen, session),
            _watching_tokens(model, session),
            watching_turns(model, session),
        ):
            yield recording
        session.finish()
        queue.finish()
        describe = partial(
            describe_sequence, model, inner, session, text_provenance=text_provenance or {},
            model_provenance=model_provenance or {},
            prompt_length=prompt_length, generation=generation or {},
            tokenizer=tokenizer if token_strings else None,
        )  # fmt: skip
        recording.paths = destinations.commit(map(describe, range(len(session.sequences))))
    seconds = time.perf_counter() - started
    recording.report = report_of(recording.paths, session, seconds, destinations.kept)


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
