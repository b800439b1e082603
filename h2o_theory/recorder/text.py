"""Recording one text, or several, in one call."""

from pathlib import Path

from h2o_theory.errors import BadArgument, OutputExists
from h2o_theory.recorder.admission import check_model
from h2o_theory.recorder.capture import record
from h2o_theory.recorder.destinations import sequence_folder
from h2o_theory.recorder.encode import encode, encode_all
from h2o_theory.recorder.models import LoadedModel
from h2o_theory.recorder.passes import check_chunk, generate, prefill
from h2o_theory.recorder.plan import planned_spec
from h2o_theory.recorder.settings import choose_settings
from h2o_theory.trace import open_trace, require_room

__all__ = ["plan_texts", "record_text", "record_texts"]


def record_text(
    model,
    text,
    tokens,
    out,
    *,
    tokenizer=None,
    text_name="text",
    chunk=None,
    generation=None,
    **options,
):
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
    chunk : int, optional
        Tokens per pass: memory is then bounded by the chunk, apart from the KV cache. All in one
        pass by default.
    generation : Generation, optional
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
    OutputExists, OutOfRange, UnsupportedModel, RecordingRefused, DiskFull
        As ``record`` does.
    """
    tokenizer = _tokenizer(model, tokenizer)
    ids = encode(tokenizer, text, tokens, text_name)
    source = {"name": text_name, "characters": len(text)}
    return _record_ids(model, ids, out, source, tokenizer, chunk, generation, options)


def record_texts(
    model,
    texts,
    tokens,
    out,
    *,
    tokenizer=None,
    name="texts",
    chunk=None,
    generation=None,
    resume=False,
    progress=None,
    **options,
):
    """Record several texts, each as a trace of its own: ``out/000000``, ``out/000001``, ...

    Parameters
    ----------
    model, tokenizer, chunk, generation, **options
        As for :func:`record_text`.
    texts : list of str
    tokens : int or None
        Tokens to record of each text at most; None for whole texts.
    out : path
        The parent folder of the traces.
    name : str
        What the traces call the collection of texts.
    resume : bool
        Skip texts whose trace is finished, and go on with one that is not.
    progress : callable (done, total, label), optional

    Returns
    -------
    list of Recording
        Those made now.

    Raises
    ------
    OutputExists
        If ``out`` exists and ``resume`` is false, or holds the trace of another text.
    TextError, BadArgument, OutOfRange, UnsupportedModel, RecordingRefused, DiskFull
        As :func:`record_text` does. All texts are tokenised, and the disk's room for all of them
        is checked, before the first is recorded.
    """
    tokenizer = _tokenizer(model, tokenizer)
    sequences = encode_all(tokenizer, texts, tokens, name)
    if not resume and sequence_folder(out, 0).parent.exists():
        raise OutputExists(
            "the output exists",
            where=out,
            hint="Choose another folder, or go on with it by --resume (resume=True)",
        )
    present = [_is_present(sequence_folder(out, i), ids) for i, ids in enumerate(sequences)]
    missing = [ids for ids, there in zip(sequences, present, strict=True) if not there]
    require_room(Path(out), _plans(model, missing, generation, options))
    recordings = []
    for index, (text, ids) in enumerate(zip(texts, sequences, strict=True)):
        if present[index]:
            continue
        source = {"name": name, "characters": len(text)}
        source |= {"sequence": index, "sequences": len(texts)}
        told = _prefixed(progress, f"text {index + 1} of {len(texts)}, ")
        more = {**options, "progress": told, "resume": resume}
        folder = sequence_folder(out, index)
        recordings.append(
            _record_ids(model, ids, folder, source, tokenizer, chunk, generation, more)
        )
    return recordings


def plan_texts(
    model,
    texts,
    tokens,
    *,
    several=True,
    tokenizer=None,
    name="text",
    generation=None,
    **options,
):
    """The planned specs of recording texts: what will be written, known before the run.

    Parameters
    ----------
    several : bool
        Whether the texts go to :func:`record_texts` or the only one to :func:`record_text`.
    model, texts, tokens, tokenizer, name, generation, **options
        As for these.

    Returns
    -------
    list of TraceSpec
        For :func:`h2o_theory.trace.predict_bytes`.
    """
    tokenizer = _tokenizer(model, tokenizer)
    if not several:
        sequences = [encode(tokenizer, texts[0], tokens, name)]
    else:
        sequences = encode_all(tokenizer, texts, tokens, name)
    return _plans(model, sequences, generation, options)


def _record_ids(model, ids, out, source, tokenizer, chunk, generation, options):
    network, chunk = _network(model), check_chunk(chunk)
    expected = len(ids) + (generation.new_tokens if generation else 0)
    _check_context(network, expected)
    noted = generation.describe() if generation else {}
    with record(
        model, out, tokenizer=tokenizer, text=source, tokens=expected, prompt_length=len(ids),
        generation=noted, **options,
    ) as recording:  # fmt: skip
        if generation:
            generate(network, ids, generation, chunk)
        else:
            prefill(network, ids, chunk)
    return recording


def _plans(model, sequences, generation, options):
    network = _network(model)
    check_model(network)
    asked = ("layers", "kv_heads", "store", "dtype")
    chosen = {key: options[key] for key in asked if key in options}
    settings = choose_settings(network, **chosen)
    more = generation.new_tokens if generation else 0
    return [planned_spec(network.config, settings, len(ids) + more) for ids in sequences]


def _is_present(folder, ids):
    """Whether the finished trace of a text is there; another text's is refused."""
    if not folder.exists():
        return False
    found = open_trace(folder).spec.token_ids[: len(ids)]
    if found != tuple(ids):
        raise OutputExists(
            "the folder holds the trace of another text",
            where=folder,
            hint="Record into another folder",
        )
    return True


def _prefixed(progress, prefix):
    if progress is None:
        return None
    return lambda done, total, label: progress(done, total, prefix + label)


def _network(model):
    return model.model if isinstance(model, LoadedModel) else model


def _tokenizer(model, tokenizer):
    if tokenizer is None and isinstance(model, LoadedModel):
        tokenizer = model.tokenizer
    if tokenizer is None:
        raise BadArgument("a tokenizer is needed to read a text", where="tokenizer")
    return tokenizer


def _check_context(network, tokens):
    context = getattr(network.config, "max_position_embeddings", None)
    if context is not None and tokens > context:
        raise BadArgument(
            "more tokens than the model's context",
            where="tokens",
            got=tokens,
            expected=f"at most {context}",
        )
