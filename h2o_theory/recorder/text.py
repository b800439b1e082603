"""Recording a text in one call."""

from h2o_theory.errors import BadArgument, TextError
from h2o_theory.recorder.capture import record
from h2o_theory.recorder.dependencies import require
from h2o_theory.recorder.models import LoadedModel

__all__ = ["encode", "record_text"]


def record_text(model, text, tokens, out, *, tokenizer=None, text_name="text", **options):
    """Tokenise a text and record one forward pass over its first tokens.

    The pass runs the model's decoder without the language-model head: a recording needs no
    logits, and T x vocabulary of them (403 MB for SmolLM2 at T = 2048) would outweigh the trace.
    No KV cache is kept either.

    Parameters
    ----------
    model : LoadedModel or transformers.PreTrainedModel
    text : str
    tokens : int or None
        How many tokens to record; None for the whole text.
    out : path
        Folder of the trace.
    tokenizer : transformers tokenizer, optional
        That of the LoadedModel by default.
    text_name : str
        What the trace calls the text.
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
    OutputExists, OutOfRange, UnsupportedModel, RecordingRefused
        As ``record`` does.
    """
    torch = require("torch")
    network = model.model if isinstance(model, LoadedModel) else model
    if tokenizer is None:
        tokenizer = model.tokenizer if isinstance(model, LoadedModel) else None
    if tokenizer is None:
        raise BadArgument("a tokenizer is needed to read a text", where="tokenizer")
    ids = encode(tokenizer, text, tokens, text_name)
    context = getattr(network.config, "max_position_embeddings", None)
    if context is not None and len(ids) > context:
        raise BadArgument(
            "more tokens than the model's context",
            where="tokens",
            got=len(ids),
            expected=f"at most {context}",
        )
    source = {"name": text_name, "characters": len(text)}
    with record(model, out, tokenizer=tokenizer, text=source, **options) as recording:
        with torch.no_grad():
            batch = torch.tensor([ids], device=network.device)
            network.base_model(input_ids=batch, use_cache=False)
    return recording


def encode(tokenizer, text, tokens=None, name="text"):
    """The first token ids of a text, the start token included if the tokenizer adds one.

    Raises
    ------
    TextError
        If the text is empty or too short; says how many tokens it has.
    BadArgument
        If ``tokens`` is not a positive integer.
    """
    if not isinstance(text, str) or not text.strip():
        raise TextError("the text is empty", where=name, expected="prose")
    if tokens is not None and (isinstance(tokens, bool) or not hasattr(tokens, "__index__")):
        raise BadArgument("tokens must be an integer", where="tokens", got=tokens)
    if tokens is not None and tokens < 1:
        raise BadArgument("at least one token is needed", where="tokens", got=tokens)
    # verbose=False: the text may exceed the model's context, only its first tokens are used.
    ids = tokenizer(text, verbose=False)["input_ids"]
    if tokens is not None and len(ids) < tokens:
        raise TextError(
            "the text is shorter than the tokens asked for",
            where=name,
            got=f"{len(ids)} tokens",
            expected=f"at least {tokens}",
            hint="Use a longer text or ask for fewer tokens",
        )
    return ids if tokens is None else ids[:tokens]
