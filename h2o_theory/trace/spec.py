"""What a trace says about itself: the model, the layers, the text."""

import json
from dataclasses import asdict, dataclass, field, fields

from h2o_theory.errors import CorruptTrace

__all__ = ["SCHEMA", "LayerSpec", "TraceSpec"]

SCHEMA = 1


@dataclass(frozen=True)
class LayerSpec:
    """Shape and scaling of one recorded layer.

    Attributes
    ----------
    layer : int
        The model's own layer number.
    q_heads, kv_heads : int
        Query heads and key/value heads; ``q_heads`` is a multiple of ``kv_heads``.
    head_dim, value_dim : int
        Width of a key and of a value; 0 where the trace does not hold them.
    scaling : float
        The factor on the logits that the model passed to its attention.
    softcap : float or None
        Soft limit on the logits.
    sliding_window : int or None
        The window the model declared; the visible intervals ``lo, hi`` are what counts.
    """

    layer: int
    q_heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    scaling: float
    softcap: float | None = None
    sliding_window: int | None = None

    @property
    def group(self):
        """Query heads per kv_head (1 without grouped-query attention)."""
        return self.q_heads // self.kv_heads


@dataclass(frozen=True)
class TraceSpec:
    """The contents of ``spec.json``.

    Attributes
    ----------
    tokens : int
        Length T of the recorded sequence.
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
    """

    tokens: int
    layers: tuple
    content: str = "qkv"
    dtype: str = "float32"
    model: dict = field(default_factory=dict)
    token_ids: tuple | None = None
    token_strings: tuple | None = None
    text: dict = field(default_factory=dict)
    prompt_length: int | None = None
    versions: dict = field(default_factory=dict)
    schema: int = SCHEMA

    def as_dict(self):
        """The spec as plain dictionaries and tuples."""
        return asdict(self)

    def to_json(self):
        """The spec as text, in a fixed order, with token ids on one line each key."""
        return json.dumps(self.as_dict(), sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text, where):
        """Parse ``spec.json``; raises CorruptTrace with the path ``where`` if it makes no sense."""
        try:
            raw = json.loads(text)
            known = {item.name for item in fields(cls)}
            if set(raw) - known:
                raise ValueError(f"unknown keys {sorted(set(raw) - known)}")
            if raw["schema"] != SCHEMA:
                raise ValueError(f"schema {raw['schema']}, this version reads {SCHEMA}")
            raw["layers"] = tuple(LayerSpec(**layer) for layer in raw["layers"])
            for name in ("token_ids", "token_strings"):
                raw[name] = None if raw[name] is None else tuple(raw[name])
            return cls(**raw)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptTrace(
                "the trace's spec.json cannot be read",
                where=where,
                got=error,
                expected=f"a spec of schema {SCHEMA}",
                hint="Record the trace again or restore the file",
            ) from None
