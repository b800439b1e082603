"""Texts to token ids."""

from h2o_theory.errors import BadArgument, TextError

__all__ = ["encode", "encode_all"]


def encode(tokenizer, text, tokens=None, name="text", *, exact=True):
    """The first token ids of a text, the start token included if the tokenizer adds one.

    Raises
    ------
    TextError
        If the text is empty or, with ``exact``, too short; says how many tokens it has.
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
    if exact and tokens is not None and len(ids) < tokens:
        raise TextError(
            "the text is shorter than the tokens asked for",
            where=name,
            got=f"{len(ids)} tokens",
            expected=f"at least {tokens}",
            hint="Use a longer text or ask for fewer tokens",
        )
    return ids if tokens is None else ids[:tokens]


def encode_all(tokenizer, texts, tokens, name):
    """Token ids of several texts, at most ``tokens`` of each; raises TextError as above."""
    if not texts:
        raise TextError("there is no text", where=name, expected="at least one")
    return [
        encode(tokenizer, text, tokens, f"{name}, text {index + 1}", exact=False)
        for index, text in enumerate(texts)
    ]
