"""What to record of a model and how strictly to check it."""

from dataclasses import dataclass

from h2o_theory.errors import BadArgument
from h2o_theory.recorder.admission import check_kv_heads, check_layers
from h2o_theory.recorder.load_options import DTYPES
from h2o_theory.recorder.plan import geometry

__all__ = ["CHECK_ROWS", "STORES", "Settings", "check_arguments", "choose_settings"]

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
    model_dtype, dtype : str
        Dtype of the model's tensors and of the stored ones.
    check_rows : int
        Rows recomputed per call and layer.
    end_tokens : frozenset of int
        Token ids that end a generated sequence.
    padding : frozenset of int
        What generation may feed to a sequence that has ended.
    progress : callable (done, total, label) or None
    expected : int or None
        Tokens there will be, generated ones included, where that is known.
    """

    layers: tuple
    kv_heads: tuple
    store: str
    model_dtype: str
    dtype: str
    check_rows: int
    end_tokens: frozenset = frozenset()
    padding: frozenset = frozenset()
    progress: object = None
    expected: int | None = None


def check_arguments(
    *, store, dtype, self_check_rows, token_strings, tokenizer, tokens, prompt_length
):
    """Refuse arguments of ``record`` that are wrong for any model; raises BadArgument."""
    for name, number in (("tokens", tokens), ("prompt_length", prompt_length)):
        if number is not None and (not isinstance(number, int) or number < 1):
            raise BadArgument(
                "a number of tokens is needed", where=name, got=number, expected="None or from 1"
            )
    if store not in STORES:
        raise BadArgument("unknown content", where="store", got=store, expected=" or ".join(STORES))
    if dtype not in ("model", *DTYPES):
        raise BadArgument(
            "unknown dtype", where="dtype", got=dtype, expected=" or ".join(("model", *DTYPES))
        )
    if not isinstance(self_check_rows, int) or self_check_rows < 1:
        raise BadArgument(
            "at least one row must be checked",
            where="self_check_rows",
            got=self_check_rows,
            expected="an integer from 1",
        )
    if token_strings and tokenizer is None:
        raise BadArgument(
            "token strings need a tokenizer", where="token_strings", hint="Pass tokenizer="
        )


def choose_settings(
    model,
    *,
    layers=None,
    kv_heads=None,
    store="qkv",
    dtype="model",
    check_rows=CHECK_ROWS,
    progress=None,
    expected=None,
):
    """The :class:`Settings` of a recording, every choice checked against the model.

    Raises
    ------
    BadArgument, OutOfRange
    """
    own = str(model.dtype).removeprefix("torch.")
    if own not in DTYPES:
        raise BadArgument(
            "the model's dtype cannot be recorded",
            where="model",
            got=own,
            expected=" or ".join(DTYPES),
        )
    if dtype == "model":
        dtype = "float32" if store == "attention" else own
    generation = getattr(model, "generation_config", None)
    ends = getattr(generation, "eos_token_id", None)
    ends = frozenset([ends] if isinstance(ends, int) else ends or ())
    padding = getattr(generation, "pad_token_id", None)
    return Settings(
        layers=check_layers(layers, model.config.num_hidden_layers),
        kv_heads=check_kv_heads(kv_heads, geometry(model.config).kv_heads),
        store=store,
        model_dtype=own,
        dtype=dtype,
        check_rows=check_rows,
        end_tokens=ends,
        padding=ends if padding is None else frozenset([padding]),
        progress=progress,
        expected=expected,
    )
