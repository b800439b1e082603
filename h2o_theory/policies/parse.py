"""Names with parameters, ``"name:parameter=value,parameter=value"``, as objects of a registry."""

import types
import typing
from dataclasses import fields

from h2o_theory.errors import BadArgument, UnknownName

__all__ = ["make_named", "parse_named", "split_names"]


def make_named(text, kind, classes):
    """An instance of one of ``classes``, a dict of names of a ``kind`` to frozen dataclasses.

    Raises
    ------
    UnknownName
        With the nearest names, if there is no such name.
    BadArgument
        For an unknown parameter or a value of the wrong type.
    """
    name, _, rest = text.strip().partition(":")
    if name not in classes:
        raise UnknownName.of(kind, name, classes)
    cls = classes[name]
    kinds = {item.name: item.type for item in fields(cls)}
    parameters = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or key not in kinds:
            raise BadArgument(
                "a parameter cannot be read",
                where=name,
                got=repr(item),
                expected=", ".join(f"{key}=..." for key in kinds) or "no parameters",
            )
        parameters[key] = _convert(name, key, value, kinds[key])
    return cls(**parameters)


def parse_named(items, kind, classes):
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


def _convert(name, key, value, kind):
    if isinstance(kind, types.UnionType):  # an optional parameter, such as int | None
        (kind,) = (member for member in typing.get_args(kind) if member is not types.NoneType)
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise BadArgument(
            "a parameter has the wrong type",
            where=f"{name}:{key}",
            got=repr(value),
            expected=kind.__name__,
        ) from None


def split_names(text):
    """A comma-separated string as a list; ``parameter=value`` belongs to the name before it.

    ``"h2o:recent=0.25,rows=raw,lru"`` is ``["h2o:recent=0.25,rows=raw", "lru"]``.
    """
    texts = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if "=" in part and ":" not in part and texts:
            texts[-1] += f",{part}"
        else:
            texts.append(part)
    return texts
