"""The bytes of text that each token of a trace stands for."""

import re

from h2o_theory.errors import BadArgument

__all__ = ["piece_bytes", "token_bytes"]

SPACE_MARK = "▁"
"""What SentencePiece writes for a space."""

_SPECIAL = re.compile(r"<(?!0x[0-9A-F]{2}>)[^<>\s]+>")
"""<s>, <bos>, <|endoftext|> and the like, but not a byte that SentencePiece writes as <0x0A>."""


def token_bytes(trace, tokenizer=None):
    """The UTF-8 bytes of each token of a trace; None for a special token, which is no text.

    Parameters
    ----------
    trace : Trace
    tokenizer : transformers tokenizer, optional
        That of the recorded model. Without it the token strings stored in the trace are used.

    Returns
    -------
    list of bytes or None
        One for each token.

    Raises
    ------
    BadArgument
        If the trace holds neither token strings nor the ids that the tokenizer needs, or if the
        tokenizer does not know the ids.
    """
    spec = trace.spec
    if tokenizer is None:
        if spec.token_strings is None:
            raise BadArgument(
                "the trace holds no token strings, so its words are not known",
                where=trace.name,
                hint="Name the model's tokenizer (--tokenizer with a hub id, a folder, a .gguf "
                "file or smollm2-135m; tokenizer= in Python), record with --token-strings, or do "
                "without words (--no-words; words=False)",
            )
        return _stored_bytes(trace)
    if spec.token_ids is None:
        raise BadArgument(
            "the trace holds no token ids, so a tokenizer cannot tell its words",
            where=trace.name,
            hint="Do without words (--no-words; words=False)",
        )
    vocabulary = len(tokenizer)
    if max(spec.token_ids, default=0) >= vocabulary:
        raise BadArgument(
            "the tokenizer is not that of the recorded model",
            where="tokenizer",
            got=f"{vocabulary} tokens, and token id {max(spec.token_ids)} in the trace",
            hint=f"Pass the tokenizer of {spec.model.get('id', 'the model')}",
        )
    special = set(tokenizer.all_special_ids)
    pieces = tokenizer.convert_ids_to_tokens(list(spec.token_ids))
    scheme = _scheme(tokenizer)
    return [
        None if token in special else piece_bytes(piece, scheme)
        for token, piece in zip(spec.token_ids, pieces, strict=True)
    ]


def _stored_bytes(trace):
    """The bytes of the stored token strings: decoded text, or pieces as a tokenizer prints them."""
    strings = trace.spec.token_strings
    if any(" " in string for string in strings):
        return [string.encode() for string in strings]
    marked = {
        mark: sum(string.startswith(mark) for string in strings) for mark in ("Ġ", SPACE_MARK)
    }
    if any(marked.values()):
        scheme = "byte-level" if marked["Ġ"] >= marked[SPACE_MARK] else "sentencepiece"
        return [
            None if _SPECIAL.fullmatch(string) else piece_bytes(string, scheme)
            for string in strings
        ]
    if len(strings) >= 20:
        raise BadArgument(
            "the trace's token strings carry no spaces, so words cannot be told apart",
            where=trace.name,
            hint="Name the model's tokenizer (--tokenizer; tokenizer= in Python)",
        )
    return [string.encode() for string in strings]


def _scheme(tokenizer):
    """``byte-level`` or ``sentencepiece``, by the marks in the vocabulary."""
    vocabulary = tokenizer.get_vocab()
    marked = {mark: sum(piece.startswith(mark) for piece in vocabulary) for mark in ("Ġ", "▁")}
    if not any(marked.values()):
        raise BadArgument(
            "the vocabulary marks no spaces that are known here",
            where="tokenizer",
            got=type(tokenizer).__name__,
            expected="byte-level BPE or SentencePiece",
        )
    return "byte-level" if marked["Ġ"] >= marked["▁"] else "sentencepiece"


def piece_bytes(piece, scheme):
    r"""The bytes that a piece of the vocabulary stands for.

    Byte-level BPE (GPT-2, LLaMA 3, OPT, Pythia) writes each byte as one printable character:
    bytes that are printable in Latin-1 as themselves, the others as U+0100 onwards in order, so
    that a space is U+0120. SentencePiece (LLaMA 1 and 2, Gemma) writes a space as U+2581, and a
    byte that no piece covers as ``<0x0A>``.

    Parameters
    ----------
    piece : str
    scheme : {"byte-level", "sentencepiece"}

    Returns
    -------
    bytes
        Not always whole characters: a character may be spread over several tokens.
    """
    if scheme == "sentencepiece":
        if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
            return bytes([int(piece[3:5], 16)])
        return piece.replace(SPACE_MARK, " ").encode()
    if all(character in _BYTE_OF for character in piece):
        return bytes(_BYTE_OF[character] for character in piece)
    return piece.encode()  # a token added beside the vocabulary is written as it is


def _byte_of():
    """The byte that each character of a byte-level vocabulary stands for."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    return table | {chr(0x100 + place): byte for place, byte in enumerate(others)}


_BYTE_OF = _byte_of()
