"""Things by name or from a TOML file: shapes and hardware are looked up in one way."""

import difflib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

from h2o_theory.errors import BadArgument, UnknownName

__all__ = ["find", "from_table", "read_toml", "require_positive"]

Found = TypeVar("Found")


def find(
    kind: str,
    name: str,
    known: Mapping[str, Found],
    read: Callable[[Path], Found],
    *,
    hint: str,
) -> Found:
    """The entry of that name, or what a ``.toml`` or ``.json`` file of that path holds.

    Raises
    ------
    UnknownName
        For a name that is not known, with near names and how to give one's own.
    """
    asked = str(name)
    key = asked.strip().lower().replace("_", "-").rpartition("/")[2]
    if key in known:
        return known[key]
    path = Path(asked)
    if path.suffix in (".toml", ".json") or path.is_dir():
        return read(path)
    error = UnknownName.of(kind, asked, known)
    raise UnknownName(error.what, hint=f"{error.hint}. {hint}")


def read_toml(path: Path) -> dict[str, Any]:
    """The table of a TOML file.

    Raises
    ------
    BadArgument
        If there is no such file or it is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadArgument("the file cannot be read", where=path, got=error.strerror) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadArgument("the file must be TOML", where=path, got=error) from None


def from_table(cls: Callable[..., Found], table: Mapping[str, Any], where: object) -> Found:
    """A dataclass from a table whose keys are its fields.

    Raises
    ------
    BadArgument
        For a key that is no field (with near names), or a field that is missing.
    """
    names = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    for key in table:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
            raise BadArgument(
                "the file has a key that means nothing here",
                where=where,
                got=key,
                expected="some of " + ", ".join(names),
                hint=f"Did you mean {near[0]}?" if near else "",
            )
    missing = [
        name
        for name, field in names.items()
        if name not in table and field.default is MISSING and field.default_factory is MISSING
    ]
    if missing:
        raise BadArgument("the file lacks keys", where=where, expected=", ".join(missing))
    return cls(**table)


def require_positive(owner: str, **values: float) -> None:
    """Raise BadArgument unless every value is a finite number above 0."""
    for name, value in values.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 < value < float("inf"):
            raise BadArgument(f"{name} must be a number above 0", where=owner, got=repr(value))
