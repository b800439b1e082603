"""The one grammar of names with parameters: ``"name:parameter=value,parameter=value"``.

Policies, shipped and a user's own, masks and transforms are all written in it.
"""

import ast
import inspect
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from h2o_theory.errors import BadArgument, UnknownName

__all__ = ["make_class", "make_named", "parse_named", "read_parameters", "split_names"]

T = TypeVar("T")


def split_names(text: str) -> list[str]:
    """A comma-separated string as a list; ``parameter=value`` belongs to the name before it.

    Examples
    --------
    >>> split_names("h2o:recent=0.25,rows=raw,lru")
    ['h2o:recent=0.25,rows=raw', 'lru']
    """
    texts = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if "=" in part and ":" not in part.partition("=")[0] and texts:
            texts[-1] += f",{part}"
        else:
            texts.append(part)
    return texts


def read_parameters(text: str, where: str) -> dict[str, str]:
    """``"parameter=value,..."`` as a dict of texts.

    Raises
    ------
    BadArgument
        If an item is no ``parameter=value`` or a parameter is given twice; ``where`` names what
        has the parameters.

    Examples
    --------
    >>> read_parameters("recent=0.25, rows=raw", "h2o")
    {'recent': '0.25', 'rows': 'raw'}
    """
    found = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not key.isidentifier():
            raise BadArgument(
                "parameters must be written parameter=value", where=where, got=repr(item)
            )
        if key in found:
            raise BadArgument(
                f"{key} must be given once", where=where, got=f"{found[key]!r} and {value!r}"
            )
        found[key] = value
    return found


def make_class(cls: type[T], text: str, where: str) -> T:
    """An instance of ``cls`` with the parameters in ``text``, ``"parameter=value,..."``.

    A value is converted to the parameter's annotation; without one it is a Python literal, or
    else text.

    Raises
    ------
    BadArgument
        For a parameter that the class does not take, does without, or that has another type.
    """
    if cls.__init__ is object.__init__:
        known, takes_any = {}, False
    else:
        _, *named = inspect.signature(cls.__init__).parameters.values()
        known = {p.name: p for p in named if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
        takes_any = any(p.kind == p.VAR_KEYWORD for p in named)
    kinds, given = _annotations(cls), {}
    for key, value in read_parameters(text, where).items():
        if key not in known and not takes_any:
            raise BadArgument(
                f"there is no parameter {key}",
                where=where,
                expected=", ".join(f"{name}=..." for name in known) or "no parameters",
            )
        given[key] = _convert(where, key, value, kinds.get(key, Any))
    missing = [p.name for p in known.values() if p.default is p.empty and p.name not in given]
    if missing:
        raise BadArgument(f"{missing[0]} must be given", where=where, expected=f"{missing[0]}=...")
    return cls(**given)


def make_named(
    text: str,
    kind: str,
    classes: Mapping[str, type[T]],
    elsewhere: Mapping[str, str] | None = None,
) -> T:
    """An instance of one of ``classes``, a dict of the names of a ``kind``.

    Raises
    ------
    UnknownName
        With the nearest names, if there is no such name.
    BadArgument
        As :func:`make_class` does.
    """
    name, _, rest = text.strip().partition(":")
    if name not in classes:
        raise UnknownName.of(kind, name, classes, elsewhere=elsewhere)
    return make_class(classes[name], rest, name)


def parse_named(
    items: str | T | Iterable[str | T], kind: type[T], classes: Mapping[str, type[T]]
) -> list[T]:
    """A list of ``kind`` objects from a comma-separated string, one object, or a list of both.

    Raises
    ------
    UnknownName
        Also if an item is neither a name nor such an object, or if there is none.
    BadArgument
        As :func:`make_named` does.
    """
    if isinstance(items, str):
        items = split_names(items)
    elif isinstance(items, kind):
        items = [items]
    noun = kind.__name__.lower()
    made = [make_named(i, noun, classes) if isinstance(i, str) else i for i in items]
    wrong = [item for item in made if not isinstance(item, kind)]
    if wrong or not made:
        raise UnknownName(
            f"this is not a {noun}" if wrong else f"no {noun} was given",
            got=repr(wrong[0]) if wrong else "",
            expected=", ".join(classes),
        )
    return made


def _annotations(cls):
    """Annotations of the constructor; those that do not resolve say nothing."""
    try:
        return typing.get_type_hints(cls.__init__)
    except (NameError, TypeError):
        return {}


def _convert(where, key, value, kind):
    """``value`` as ``kind``; of a union the first member that takes it."""
    union = typing.get_origin(kind) in (types.UnionType, typing.Union)
    members = typing.get_args(kind) if union else (kind,)
    for member in members:
        try:
            return _as_kind(value, member)
        except (TypeError, ValueError, SyntaxError):
            continue
    names = " or ".join(getattr(m, "__name__", str(m)) for m in members if m is not type(None))
    raise BadArgument(f"{key} must be {names}", where=where, got=repr(value))


def _as_kind(value, kind):
    if kind in (int, float, str):
        return kind(value)
    if kind is bool:
        return _one_of(value.lower(), {"true": True, "false": False})
    if kind is type(None):
        return _one_of(value, {"None": None})
    try:
        literal = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        literal = value
    own = typing.get_origin(kind) or kind
    if own is typing.Literal:
        return _one_of(literal, {choice: choice for choice in typing.get_args(kind)})
    if own is Any or not inspect.isclass(own) or isinstance(literal, own):
        return literal
    return own(literal)


def _one_of(value, choices):
    if value not in choices:
        raise ValueError(value)
    return choices[value]
