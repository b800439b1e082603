"""Texts: read from a file, and turned into token ids."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from h2o_theory.annotations import PathLike
from h2o_theory.errors import BadArgument, TextError

__all__ = ["encode", "encode_all", "read_text", "read_texts"]


def read_text(path: PathLike) -> str:
    """The contents of a text file, without a byte order mark.

    Raises TextError if the file is missing, not UTF-8 or empty.
    """
    if Path(path).exists() and not Path(path).is_file():
        # A pipe or a device may never end.
        raise TextError("the text must be a regular file", where=path)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise TextError(
            "the text cannot be read",
            where=path,
            got=error.strerror,
            hint="Give the path of a UTF-8 text file",
        ) from None
    except UnicodeDecodeError as error:
        raise TextError(
            "the text is not UTF-8", where=path, got=f"byte {error.start}: {error.reason}"
        ) from None
    if not text.strip():
        raise TextError("the text must not be empty", where=path)
    return text


def read_texts(path: PathLike, field: str | None = None) -> list[str]:
    """The texts of a file, one a line; blank lines are passed over.

    Parameters
    ----------
    path : path
        A UTF-8 file.
    field : str, optional
        Each line is a JSON object, and this key of it holds the text. Otherwise the line is the
        text.

    Returns
    -------
    list of str

    Raises
    ------
    TextError
        With the number of the first line that is not as expected.
    """
    lines = [
        (number, line)
        # Not splitlines: U+2028 and its like may stand inside a JSON string.
        for number, line in enumerate(read_text(path).split("\n"), start=1)
        if line.strip()
    ]
    if field is None:
        return [line for _, line in lines]
    return [_field(line, field, f"{path}, line {number}") for number, line in lines]


def _field(line, field, where):
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise TextError(
            "a line is not JSON", where=where, got=error, expected=f'{{"{field}": "..."}}'
        ) from None
    text = entry.get(field) if isinstance(entry, dict) else None
    if not isinstance(text, str) or not text.strip():
        found = ", ".join(entry) if isinstance(entry, dict) else type(entry).__name__
        raise TextError(
            f"a line has no text in the field {field}", where=where, got=found, expected=field
        )
    return text


def encode(
    tokenizer: Any, text: str, tokens: int | None = None, name: str = "text", *, exact: bool = True
) -> list[int]:
    """The first token ids of a text, the start token included if the tokenizer adds one.

    Raises
    ------
    TextError
        If the text is empty or, with ``exact``, too short; says how many tokens it has.
    BadArgument
        If ``tokens`` is not a positive integer.
    """
    if not isinstance(text, str) or not text.strip():
        raise TextError("the text must not be empty", where=name)
    if tokens is not None and (isinstance(tokens, bool) or not hasattr(tokens, "__index__")):
        raise BadArgument("tokens must be a whole number or None", got=repr(tokens))
    if tokens is not None and tokens < 1:
        raise BadArgument("tokens must be at least 1", got=tokens)
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


def encode_all(
    tokenizer: Any, texts: Sequence[str], tokens: int | None, name: str
) -> list[list[int]]:
    """Token ids of several texts, at most ``tokens`` of each; raises TextError as above."""
    if not texts:
        raise TextError("at least one text is needed", where=name)
    return [
        encode(tokenizer, text, tokens, f"{name}, text {index + 1}", exact=False)
        for index, text in enumerate(texts)
    ]
