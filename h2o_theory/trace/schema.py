"""What ``spec.json`` and the lines of the manifest may hold: types, bounds, nothing else.

A checksum says that a file is as it was written, not that what was written makes sense; so every
field is checked before a number of it is used.
"""

import json
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from h2o_theory.annotations import PathLike

__all__ = ["parse_json", "read_bounded", "require_schema"]

FILE_BYTES = 256 << 20
"""Longest spec or manifest: 30 million token ids, or a million segments."""

DEPTH = 4
"""How deep the notes of provenance may be nested; rotary parameters by kind of layer need three."""


def read_bounded(path: PathLike) -> bytes:
    """The bytes of a regular file of bounded size.

    Raises
    ------
    ValueError
        For a pipe, a device, or a file of more than :data:`FILE_BYTES`: reading it may never end.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError("no regular file")
    if path.stat().st_size > FILE_BYTES:
        raise ValueError(f"{path.stat().st_size} bytes, more than {FILE_BYTES}")
    with open(path, "rb") as file:
        return file.read(FILE_BYTES)


def parse_json(text: str | bytes) -> Any:
    """JSON without NaN and infinity; raises ValueError for anything else, however deep."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


def require_schema(kind: str, value: Any) -> None:
    """Refuse a ``spec`` or a ``segment`` line with a wrong field; raises ValueError naming it."""
    from pydantic import ValidationError

    try:
        _adapters()[kind].validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{place + ': ' if place else ''}{first['msg']}") from None


def _require_short(value: Any, depth: int = DEPTH) -> Any:
    """Notes of provenance: short texts and numbers, nested to a small depth; returns them."""
    if isinstance(value, str) and len(value) > 4096:
        raise ValueError("a text of more than 4096 characters")
    if isinstance(value, dict | list):
        if depth == 0 or len(value) > 4096:
            raise ValueError("nested too deeply, or too many of them")
        for part in value.values() if isinstance(value, dict) else value:
            _require_short(part, depth - 1)
    return value


@cache
def _adapters() -> dict[str, Any]:
    """Built once, when a trace is opened: the library is not imported with the package."""
    from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter
    from typing_extensions import TypedDict

    strict = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    Number = Annotated[int, Field(ge=0, le=1 << 31)]
    Count = Annotated[int, Field(ge=1, le=1 << 20)]
    Width = Annotated[int, Field(ge=0, le=1 << 20)]
    Scale = Annotated[float, Field(gt=0, le=1e6)]
    Logit = Annotated[float, Field(ge=-1e6, le=1e6)]
    Notes = Annotated[dict[str, Any], AfterValidator(_require_short)]

    class Layer(TypedDict):
        __pydantic_config__ = strict
        layer: Width
        q_heads: Count
        kv_heads: Count
        head_dim: Width
        value_dim: Width
        scaling: Scale
        softcap: NotRequired[Scale | None]
        sliding_window: NotRequired[Annotated[int, Field(ge=1, le=1 << 31)] | None]
        sinks: NotRequired[list[Logit] | None]
        kv_head_ids: NotRequired[list[Number] | None]

    class Spec(TypedDict):
        __pydantic_config__ = strict
        schema: int
        tokens: Annotated[int, Field(ge=1, le=1 << 31)]
        layers: Annotated[list[Layer], Field(min_length=1, max_length=1 << 16)]
        content: Literal["qkv", "attention"]
        dtype: Literal["float64", "float32", "float16", "bfloat16"]
        status: Literal["complete", "recording"]
        prompt_length: NotRequired[Number | None]
        token_ids: NotRequired[list[Number] | None]
        token_strings: NotRequired[list[Annotated[str, Field(max_length=4096)]] | None]
        model: NotRequired[Notes]
        text: NotRequired[Notes]
        generation: NotRequired[Notes]
        versions: NotRequired[Notes]

    class Segment(TypedDict):
        __pydantic_config__ = strict
        kind: Literal["segment"]
        file: Annotated[str, Field(pattern=r"^seg-[0-9]{6,9}\.safetensors$")]
        bytes: Annotated[int, Field(ge=0)]
        sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
        layers: Annotated[list[Number], Field(min_length=1, max_length=1 << 16)]
        start: Number
        stop: Number

    return {"spec": TypeAdapter(Spec), "segment": TypeAdapter(Segment)}
