"""The shape of a model: what its weights and its keys and values weigh, and what a token costs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from h2o_theory.costs.read import find, from_table, read_toml, require_positive
from h2o_theory.errors import BadArgument

__all__ = ["SHAPES", "ModelShape", "find_shape", "shape_from_config"]


@dataclass(frozen=True)
class ModelShape:
    r"""Sizes of a decoder-only transformer.

    Keys and values of one token in one layer take

    .. math:: c = 2 \cdot h_{kv} \cdot d \cdot w \quad \text{bytes}

    for :math:`h_{kv}` kv_heads of dimension d in w bytes a number. A block holds
    :math:`2 n h d + 2 n h_{kv} d` numbers of attention and :math:`2 n f` (:math:`3 n f` gated) of
    its MLP, for width n, h heads and f inner units; biases and norms are left out (below 0.1 %).

    Attributes
    ----------
    name : str
    layers, width, heads, ffn, vocabulary : int
        Blocks, hidden size, query heads, inner units of the MLP, tokens of the vocabulary.
    kv_heads, head_dim : int
        0: as many as heads, width / heads.
    gated : bool
        An MLP of three matrices instead of two.
    positions : int
        Rows of a table of learned positions.
    tied : bool
        One table for the first and last layer.
    number_bytes : float
        Bytes of a number, of weights and activations.
    """

    name: str
    layers: int
    width: int
    heads: int
    ffn: int
    vocabulary: int
    kv_heads: int = 0
    head_dim: int = 0
    gated: bool = False
    positions: int = 0
    tied: bool = True
    number_bytes: float = 2.0

    def __post_init__(self) -> None:
        sizes = {key: getattr(self, key) for key in ("layers", "width", "heads", "ffn")}
        require_positive(self.name, **sizes, vocabulary=self.vocabulary)
        require_positive(self.name, number_bytes=self.number_bytes)
        object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)
        object.__setattr__(self, "head_dim", self.head_dim or self.width // self.heads)
        if self.heads % self.kv_heads:
            raise BadArgument(
                "heads must be a multiple of kv_heads",
                where=self.name,
                got=f"{self.heads} heads, {self.kv_heads} kv_heads",
            )

    @property
    def block_parameters(self) -> int:
        """Numbers of one block."""
        attention = 2 * self.width * self.head_dim * (self.heads + self.kv_heads)
        return attention + (3 if self.gated else 2) * self.width * self.ffn

    @property
    def parameters(self) -> int:
        """Numbers of all blocks and of the tables of tokens and positions."""
        tables = self.vocabulary * (1 if self.tied else 2) + self.positions
        return self.layers * self.block_parameters + tables * self.width

    @property
    def block_bytes(self) -> float:
        """Weights of one block."""
        return self.block_parameters * self.number_bytes

    @property
    def weight_bytes(self) -> float:
        """All weights."""
        return self.parameters * self.number_bytes

    @property
    def entry_bytes(self) -> float:
        """Key and value of one token in one layer, at the model's own precision."""
        return 2 * self.kv_heads * self.head_dim * self.number_bytes

    @property
    def token_bytes(self) -> float:
        """Keys and values of one token in all layers.

        >>> find_shape("opt-30b").token_bytes
        1376256.0
        """
        return self.layers * self.entry_bytes


def _opt(size: str, layers: int, width: int, heads: int) -> ModelShape:
    return ModelShape(f"opt-{size}", layers, width, heads, 4 * width, 50272, positions=2050)


def _llama(name: str, layers: int, width: int, heads: int, ffn: int, **more: Any) -> ModelShape:
    settings = {"vocabulary": 32000, "gated": True, "tied": False} | more
    return ModelShape(name, layers, width, heads, ffn, **settings)


SHAPES: dict[str, ModelShape] = {
    shape.name: shape
    for shape in (
        _opt("6.7b", 32, 4096, 32),
        _opt("13b", 40, 5120, 40),
        _opt("30b", 48, 7168, 56),
        _opt("66b", 64, 9216, 72),
        _llama("llama-7b", 32, 4096, 32, 11008),
        _llama("llama-13b", 40, 5120, 40, 13824),
        _llama("llama-3-8b", 32, 4096, 32, 14336, kv_heads=8, vocabulary=128256),
        _llama("llama-3-70b", 80, 8192, 64, 28672, kv_heads=8, vocabulary=128256),
        ModelShape("gpt-neox-20b", 44, 6144, 64, 24576, 50432, tied=False),
        _llama("smollm2-135m", 30, 576, 9, 1536, kv_heads=3, vocabulary=49152, tied=True),
    )
}
"""Shapes by name, as in the models' published configurations."""

_HINT = (
    "Or give a TOML file with layers, width, heads, ffn and vocabulary, or the config.json of a "
    "model of transformers"
)


def find_shape(name: str) -> ModelShape:
    """A shape by name, from a TOML file, a ``config.json`` or a folder that holds one.

    Raises
    ------
    UnknownName
        With near names.
    BadArgument
        For a file that lacks a size.
    """
    return find("model", name, SHAPES, _read, hint=_HINT)


def _read(path: Path) -> ModelShape:
    if path.suffix == ".toml":
        table = read_toml(path)
        return from_table(ModelShape, {"name": path.stem} | table, path)
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadArgument("the file cannot be read", where=file, got=error.strerror) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadArgument("the file must be JSON", where=file, got=error) from None
    if not isinstance(config, dict):
        raise BadArgument("the file must hold the settings of a model", where=file)
    return shape_from_config(config, name=file.parent.name)


_NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "width": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head"),
    "ffn": ("intermediate_size", "ffn_dim", "n_inner"),
    "vocabulary": ("vocab_size",),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
}
_UNGATED = {"opt", "gpt2", "gpt_neox", "gpt_bigcode", "phi", "starcoder2", "bloom", "gptj"}


def shape_from_config(config: object, *, name: str = "", number_bytes: float = 2) -> ModelShape:
    """The shape that a transformers configuration, as an object or a dict, describes.

    Families known to have an MLP of two matrices get one; all others are taken to be gated.

    >>> shape_from_config({"model_type": "opt", "num_hidden_layers": 2, "hidden_size": 8,
    ...     "num_attention_heads": 2, "ffn_dim": 32, "vocab_size": 100}).block_parameters
    768

    Raises
    ------
    BadArgument
        If a size is missing.
    """
    table: Mapping[str, Any] = config if isinstance(config, Mapping) else vars(config)
    inner = table.get("text_config")
    if inner:
        table = inner if isinstance(inner, Mapping) else vars(inner)
    found: dict[str, int] = {}
    for size, names in _NAMES.items():
        values = [table[key] for key in names if table.get(key)]
        if values:
            found[size] = int(values[0])
    if "ffn" not in found and "width" in found:
        found["ffn"] = 4 * found["width"]
    missing = [size for size in ("layers", "width", "heads", "vocabulary") if size not in found]
    if missing:
        raise BadArgument(
            "the configuration lacks sizes",
            where=name,
            expected=", ".join(_NAMES[size][0] for size in missing),
        )
    family = str(table.get("model_type", ""))
    learned = family in ("opt", "gpt2", "gpt_bigcode")
    return ModelShape(
        name=name or family or "model",
        gated=family not in _UNGATED,
        positions=int(table.get("max_position_embeddings", 0)) if learned else 0,
        tied=bool(table.get("tie_word_embeddings", family in ("opt", "gpt2"))),
        number_bytes=number_bytes,
        **found,
    )
