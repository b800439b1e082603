"""Recording one text, or several, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from h2o_theory.annotations import PathLike, Progress
from h2o_theory.recorder.capture import record
from h2o_theory.recorder.destinations import sequence_folder
from h2o_theory.recorder.passes import generate, prefill, require_piece
from h2o_theory.recorder.reading import encode, encode_all
from h2o_theory.recorder.text_plans import (
    is_present,
    missing_plans,
    network_of,
    plan_sequences,
    tokenizer_of,
)
from h2o_theory.trace import require_free, require_room

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from h2o_theory.recorder.models import LoadedModel
    from h2o_theory.recorder.passes import GenerationSettings
    from h2o_theory.recorder.recording import Recording

__all__ = ["record_text", "record_texts"]


def record_text(
    model: PreTrainedModel | LoadedModel,
    text: str,
    tokens: int | None,
    out: PathLike,
    *,
    tokenizer: Any = None,
    text_name: str = "text",
    piece: int | None = None,
    generation: GenerationSettings | None = None,
    **options: Any,
) -> Recording:
    """Tokenise a text, record its first tokens and, if asked for, what the model writes next.

    Parameters
    ----------
    model : LoadedModel or transformers.PreTrainedModel
    text : str
    tokens : int or None
        How many tokens of the text to record; None for the whole text.
    out : path
        Folder of the trace.
    tokenizer : transformers tokenizer, optional
        That of the LoadedModel by default.
    text_name : str
        What the trace calls the text.
    piece : int, optional
        Tokens per pass: memory is then bounded by the piece, apart from the KV cache. All in one
        pass by default.
    generation : GenerationSettings, optional
        Tokens to generate after the text, which is then the prompt; none by default.
    **options
        Passed on to :func:`~h2o_theory.recorder.capture.record`.

    Returns
    -------
    Recording

    Raises
    ------
    TextError
        If the text is empty or has fewer tokens than asked for.
    BadArgument
        Without a tokenizer, or for more tokens than the model's context.
    OutputExists, OutOfRange, UnsupportedModel, RecordingRefused, CannotWrite
        As ``record`` does.
    """
    tokenizer = tokenizer_of(model, tokenizer)
    ids = encode(tokenizer, text, tokens, text_name)
    (plan,) = plan_sequences(model, [ids], generation, options)
    source = {"name": text_name, "characters": len(text)}
    return _record_plan(model, plan, out, source, tokenizer, piece, generation, options)


def record_texts(
    model: PreTrainedModel | LoadedModel,
    texts: Sequence[str],
    tokens: int | None,
    out: PathLike,
    *,
    tokenizer: Any = None,
    text_name: str = "texts",
    piece: int | None = None,
    generation: GenerationSettings | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> list[Recording]:
    """Record several texts, each as a trace of its own: ``out/000000``, ``out/000001``, ...

    Parameters
    ----------
    model, tokenizer, piece, generation, **options
        As for :func:`record_text`.
    texts : list of str
    tokens : int or None
        Tokens to record of each text at most; None for whole texts.
    out : path
        The parent folder of the traces.
    text_name : str
        What the traces call the collection of texts.
    resume : bool
        Skip texts whose trace is finished, and go on with one that is not. A finished one must
        have been recorded by the same model with the same options.
    progress : callable (done, total, label), optional

    Returns
    -------
    list of Recording
        Those made now.

    Raises
    ------
    OutputExists
        If ``out`` exists and ``resume`` is false, or holds a trace of another text, by another
        model or with other options.
    TextError, BadArgument, OutOfRange, UnsupportedModel, RecordingRefused, CannotWrite
        As :func:`record_text` does. All texts are tokenised, and their length against the model's
        context and the disk's room for all of them checked, before the first is recorded.
    """
    tokenizer = tokenizer_of(model, tokenizer)
    require_piece(piece)
    sequences = encode_all(tokenizer, texts, tokens, text_name)
    plans = plan_sequences(model, sequences, generation, options)
    if not resume:
        require_free(out)
    require_room(Path(out), missing_plans(plans, out))
    recordings = []
    for index, (text, plan) in enumerate(zip(texts, plans, strict=True)):
        folder = sequence_folder(out, index)
        if is_present(folder, plan):
            continue
        source = {"name": text_name, "characters": len(text)}
        source |= {"sequence": index, "sequences": len(texts)}
        told = _prefixed(progress, f"text {index + 1} of {len(texts)}, ")
        more = {**options, "progress": told, "resume": resume}
        recordings.append(
            _record_plan(model, plan, folder, source, tokenizer, piece, generation, more)
        )
    return recordings


def _record_plan(model, plan, out, source, tokenizer, piece, generation, options):
    require_piece(piece)
    network, ids = network_of(model), list(plan.token_ids)
    with record(
        model, out, tokenizer=tokenizer, text_provenance=source, tokens=plan.tokens,
        prompt_length=len(ids), generation=plan.generation, **options,
    ) as recording:  # fmt: skip
        if generation:
            generate(network, ids, generation, piece)
        else:
            prefill(network, ids, piece)
    return recording


def _prefixed(progress, prefix):
    if progress is None:
        return None
    return lambda done, total, label: progress(done, total, prefix + label)
