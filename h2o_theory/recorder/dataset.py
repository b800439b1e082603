"""Texts from a file: the whole of it, one a line, or a field of JSON lines."""

import json
from pathlib import Path

from h2o_theory.errors import TextError

__all__ = ["read_text", "read_texts"]


def read_text(path):
    """The contents of a text file, without a byte order mark.

    Raises TextError if the file is missing, not UTF-8 or empty.
    """
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
        raise TextError("the text is empty", where=path, expected="at least one token")
    return text


def read_texts(path, field=None):
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
