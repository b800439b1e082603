"""What a trace says about itself: the model, the layers, the text."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from h2o_theory.errors import BadArgument, CorruptTrace
from h2o_theory.trace.schema import parse_json, require_schema

__all__ = ["SCHEMA", "LayerSpec", "TraceSpec"]

SCHEMA = 2


@dataclass(frozen=True)
class LayerSpec:
    """Shape and scaling of one recorded layer.

    Attributes
    ----------
    layer : int
        The model's own layer number.
    q_heads, kv_heads : int
        Recorded query heads and kv_heads; ``q_heads`` is a multiple of ``kv_heads``.
    head_dim, value_dim : int
        Width of a key and of a value; 0 where the trace does not hold them.
    scaling : float
        The factor on the logits that the model passed to its attention.
    softcap : float or None
        Soft limit on the logits.
    sliding_window : int or None
        The window the model declared; the visible intervals ``lo, hi`` are what counts.
    sinks : tuple of float or None
        Attention sinks as gpt-oss has them: one logit per recorded query head that joins the
        softmax's denominator and no key, so that a row sums to less than one by the sink's
        share. None without sinks; empty for stored rows whose sink logits are unknown.
    kv_head_ids : tuple of int
        The model's own numbers of the recorded kv_heads; 0 .. kv_heads-1 if not given.
    """

    layer: int
    q_heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    scaling: float
    softcap: float | None = None
    sliding_window: int | None = None
    sinks: tuple[float, ...] | None = None
    kv_head_ids: tuple[int, ...] | None = None

    def __post_init__(self):
        ids = range(self.kv_heads) if self.kv_head_ids is None else self.kv_head_ids
        object.__setattr__(self, "kv_head_ids", tuple(ids))
        if self.sinks is not None:
            object.__setattr__(self, "sinks", tuple(self.sinks))
        if self.kv_heads < 1 or self.q_heads % self.kv_heads:
            self._refuse("query heads do not divide into kv_heads", self.q_heads, self.kv_heads)
        if len(set(self.kv_head_ids)) != self.kv_heads:
            self._refuse("kv_heads are misnumbered", self.kv_head_ids, f"{self.kv_heads} numbers")
        if self.sinks and len(self.sinks) != self.q_heads:
            self._refuse("not one sink per query head", len(self.sinks), self.q_heads)

    def _refuse(self, what, got, expected):
        raise BadArgument(what, where=f"layer {self.layer}", got=got, expected=expected)

    @property
    def group(self) -> int:
        """Query heads per kv_head (1 without grouped-query attention)."""
        return self.q_heads // self.kv_heads


@dataclass(frozen=True)
class TraceSpec:
    """The contents of ``spec.json``.

    Attributes
    ----------
    tokens : int or None
        Length T of the recorded sequence; None while it is not known yet.
    layers : tuple of LayerSpec
    content : {"qkv", "attention"}
        Queries, keys and values, or packed attention rows.
    dtype : str
        Storage dtype of the tensors.
    model, text, versions : dict
        Provenance: model id, family, revision, rope; name of the text; library versions.
    token_ids : tuple of int or None
    token_strings : tuple of str or None
        Present only if asked for when recording.
    prompt_length : int
        Tokens that were given rather than generated; T for a recorded text.
    generation : dict
        How the tokens after the prompt were chosen: ``method`` (greedy or sampled),
        ``new_tokens`` (asked for; the model may have ended the text before), and, if sampled,
        ``temperature``, ``top_p`` and ``seed``; empty if none was generated.
    status : {"complete", "recording"}
        ``recording`` until the last segment is on disk; only a complete trace can be opened.
    """

    tokens: int | None
    layers: tuple[LayerSpec, ...]
    content: str = "qkv"
    dtype: str = "float32"
    model: dict[str, Any] = field(default_factory=dict)
    token_ids: tuple[int, ...] | None = None
    token_strings: tuple[str, ...] | None = None
    text: dict[str, Any] = field(default_factory=dict)
    prompt_length: int | None = None
    generation: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, Any] = field(default_factory=dict)
    status: str = "complete"
    schema: int = SCHEMA

    def as_dict(self) -> dict[str, Any]:
        """The spec as plain dictionaries and tuples."""
        return asdict(self)

    def to_json(self) -> str:
        """The spec as text, in a fixed order, with token ids on one line each key."""
        return json.dumps(self.as_dict(), sort_keys=True) + "\n"

    def _require_one_meaning(self) -> None:
        """Fields against each other, which a schema of each cannot see; raises ValueError."""
        if len({layer.layer for layer in self.layers}) != len(self.layers):
            raise ValueError("layers: one is there twice")
        for layer in self.layers:
            if (self.content == "qkv") != (layer.head_dim > 0):
                raise ValueError(f"layer {layer.layer}: head_dim {layer.head_dim}")
            if layer.sinks == () and self.content == "qkv":
                raise ValueError(f"layer {layer.layer}: no logit for its sinks")

    @classmethod
    def from_json(cls, text: str, where: object) -> Self:
        """Parse ``spec.json``; raises CorruptTrace with the path ``where`` if it makes no sense."""
        try:
            raw = parse_json(text)
            if isinstance(raw, dict) and raw.get("schema") != SCHEMA:
                raise ValueError(f"schema {raw.get('schema')}, this version reads {SCHEMA}")
            require_schema("spec", raw)
            raw["layers"] = tuple(LayerSpec(**layer) for layer in raw["layers"])
            for name in ("token_ids", "token_strings"):
                raw[name] = None if raw.get(name) is None else tuple(raw[name])
            spec = cls(**raw)
            spec._require_one_meaning()
            return spec
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptTrace(
                "the trace's spec.json cannot be read",
                where=where,
                got=error,
                expected=f"a spec of schema {SCHEMA}",
                hint="Record the trace again or restore the file",
            ) from None
