"""What to record of a model, how strictly to check it, and what that will write."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from h2o_theory.annotations import Progress
from h2o_theory.errors import BadArgument
from h2o_theory.recorder.admission import kv_head_numbers, layer_numbers
from h2o_theory.recorder.load_options import DTYPES
from h2o_theory.trace import LayerSpec, TraceSpec

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

__all__ = [
    "CHECK_ROWS",
    "STORES",
    "Geometry",
    "Settings",
    "choose_settings",
    "geometry",
    "planned_spec",
    "require_arguments",
]


@dataclass(frozen=True)
class Geometry:
    """Heads of every layer of a model: their numbers and the width of a key and a value."""

    q_heads: int
    kv_heads: int
    head_dim: int


def geometry(config: PreTrainedConfig) -> Geometry:
    """The :class:`Geometry` of a config of a recordable family."""
    q_heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or q_heads
    if getattr(config, "multi_query", False):
        kv_heads = 1
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // q_heads
    return Geometry(q_heads, kv_heads, head_dim)


def planned_spec(
    config: PreTrainedConfig, settings: Settings, tokens: int | None, **details: Any
) -> TraceSpec:
    """The spec of a sequence that is about to be recorded, as far as its size depends on it.

    Parameters
    ----------
    config : transformers.PreTrainedConfig
    settings : Settings
    tokens : int or None
        Length of the sequence; None if it is not known beforehand.
    **details
        What else is known of the spec, such as ``token_ids``.

    Returns
    -------
    TraceSpec
        With the shapes and dtype of the trace to come; scaling, softcap and sinks are those of
        the finished trace's own spec and not stated here.
    """
    shape, heads = geometry(config), settings.kv_heads
    layers = tuple(
        LayerSpec(
            layer=layer,
            q_heads=len(heads) * (shape.q_heads // shape.kv_heads),
            kv_heads=len(heads),
            head_dim=0 if settings.store == "attention" else shape.head_dim,
            value_dim=0 if settings.store == "qk" else shape.head_dim,
            scaling=1.0,
            kv_head_ids=heads,
        )
        for layer in settings.layers
    )
    content = "attention" if settings.store == "attention" else "qkv"
    return TraceSpec(tokens, layers, content, settings.store_dtype, **details)


STORES = ("qkv", "qk", "attention")

CHECK_ROWS = 4
"""Rows recomputed per call and layer: with 4, under 2 % of a forward pass over 512 tokens."""


@dataclass(frozen=True)
class Settings:
    """What to store and how strictly to check it.

    Attributes
    ----------
    layers, kv_heads : tuple of int
    store : {"qkv", "qk", "attention"}
    model_dtype, store_dtype : str
        Dtype of the model's tensors and of the stored ones.
    check_rows : int
        Rows recomputed per call and layer.
    progress : callable (done, total, label) or None
    expected : int or None
        Tokens there will be, generated ones included, where that is known.
    """

    layers: tuple[int, ...]
    kv_heads: tuple[int, ...]
    store: str
    model_dtype: str
    store_dtype: str
    check_rows: int
    progress: Progress | None = None
    expected: int | None = None


def require_arguments(
    *,
    store: str,
    store_dtype: str,
    self_check_rows: int,
    token_strings: bool,
    tokenizer: Any,
    tokens: int | None,
    prompt_length: int | None,
) -> None:
    """Refuse arguments of ``record`` that are wrong for any model; raises BadArgument."""
    for name, number in (("tokens", tokens), ("prompt_length", prompt_length)):
        if number is not None and (not isinstance(number, int) or number < 1):
            raise BadArgument(
                f"{name} must be None or a whole number, at least 1", got=repr(number)
            )
    if store not in STORES:
        raise BadArgument("store must be qkv, qk or attention", got=store)
    if store_dtype not in ("model", *DTYPES):
        raise BadArgument(
            f"store_dtype must be model, {', '.join(DTYPES[:-1])} or {DTYPES[-1]}",
            got=store_dtype,
        )
    if not isinstance(self_check_rows, int) or self_check_rows < 1:
        raise BadArgument(
            "self_check_rows must be a whole number, at least 1", got=repr(self_check_rows)
        )
    if token_strings and tokenizer is None:
        raise BadArgument("token_strings=True needs a tokenizer", hint="Pass tokenizer=")


def choose_settings(
    model: PreTrainedModel,
    *,
    layers: Iterable[int] | None = None,
    kv_heads: Iterable[int] | None = None,
    store: str = "qkv",
    store_dtype: str = "model",
    check_rows: int = CHECK_ROWS,
    progress: Progress | None = None,
    expected: int | None = None,
) -> Settings:
    """The :class:`Settings` of a recording, every choice checked against the model.

    Raises
    ------
    BadArgument, OutOfRange
    """
    own = str(model.dtype).removeprefix("torch.")
    if own not in DTYPES:
        raise BadArgument(
            f"the model's dtype must be {', '.join(DTYPES[:-1])} or {DTYPES[-1]}", got=own
        )
    if store_dtype == "model":
        store_dtype = "float32" if store == "attention" else own
    return Settings(
        layers=layer_numbers(layers, model.config.num_hidden_layers),
        kv_heads=kv_head_numbers(kv_heads, geometry(model.config).kv_heads),
        store=store,
        model_dtype=own,
        store_dtype=store_dtype,
        check_rows=check_rows,
        progress=progress,
        expected=expected,
    )
