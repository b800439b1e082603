"""What must hold of a model before it is recorded, and where its attention modules are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from h2o_theory.dependencies import require
from h2o_theory.errors import BadArgument, OutOfRange, UnsupportedModel
from h2o_theory.families import FAMILIES, reason_against

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

__all__ = ["INNER", "attention_modules", "kv_head_numbers", "layer_numbers", "recordable_modules"]

INNER = ("sdpa", "eager", "flash_attention_2", "flash_attention_3")
"""Attention implementations that can do the work inside the recorder."""

DROPOUTS = ("attention_dropout", "dropout", "hidden_dropout", "layerdrop")


def recordable_modules(model: PreTrainedModel) -> dict[int, torch.nn.Module]:
    """Refuse a model whose attention cannot be captured faithfully; return its attention modules.

    Parameters
    ----------
    model : transformers.PreTrainedModel

    Returns
    -------
    dict of int to torch.nn.Module
        Layer number -> attention module, all layers, ascending.

    Raises
    ------
    BadArgument
        If it is not a transformers model.
    UnsupportedModel
        For a family that is not tested (with the reason, where one is known), an inner attention
        other than those in INNER, one that drops the family's softcap or sinks, attention that is
        not causal, active dropout, or attention modules that are not where the family has them.
    """
    if not isinstance(model, require("transformers").PreTrainedModel):
        raise BadArgument(
            "model must be a transformers model or the result of load_model",
            got=type(model).__name__,
        )
    _require_family(model)
    _require_inner(model)
    _require_no_dropout(model)
    return attention_modules(model)


def _require_family(model):
    family = model.config.model_type
    if family in FAMILIES and not getattr(model.config, "is_encoder_decoder", False):
        return
    reason = reason_against(family)
    raise UnsupportedModel(
        "this family of models cannot be recorded"
        if reason
        else "the attention of this family is not known to be recordable",
        where=type(model).__name__,
        got=f"{family}: {reason}" if reason else family,
        expected=" or ".join(FAMILIES),
    )


def _require_inner(model):
    config, inner = model.config, model.config._attn_implementation
    if inner not in INNER:
        raise UnsupportedModel(
            "the model's attention implementation cannot be recorded",
            where=type(model).__name__,
            got=inner,
            expected=" or ".join(INNER),
            hint="Load the model with attn_implementation='sdpa'",
        )
    if inner == "sdpa" and not model._supports_sdpa:
        raise UnsupportedModel(
            "sdpa attention leaves out a part of this family's attention (softcap or sinks)",
            where=type(model).__name__,
            got=inner,
            hint="Load the model with attn_implementation='eager'",
        )
    if inner == "eager" and getattr(config, "reorder_and_upcast_attn", False):
        raise UnsupportedModel(
            "the model's eager attention with reorder_and_upcast_attn is not transformers' own",
            where=type(model).__name__,
            hint="Load the model with attn_implementation='sdpa'",
        )


def attention_modules(model: PreTrainedModel) -> dict[int, torch.nn.Module]:
    """Attention modules by layer number; every layer of the config must have exactly one."""
    found = [
        (module.layer_idx, module)
        for module in model.modules()
        if type(module).__name__.endswith("Attention")
        and isinstance(getattr(module, "layer_idx", None), int)
        and hasattr(module, "config")
    ]
    for layer, module in found:
        if not getattr(module, "is_causal", True):
            raise UnsupportedModel(
                "the attention is not causal",
                where=f"layer {layer}",
                got=type(module).__name__,
                expected="a decoder without cross-attention that sees the past only",
            )
    expected = list(range(model.config.num_hidden_layers))
    if sorted(layer for layer, _ in found) != expected:
        raise UnsupportedModel(
            "the attention modules are not where this family has them",
            where=type(model).__name__,
            got=f"{len(found)} attention modules",
            expected=f"one in each of {len(expected)} layers",
        )
    return dict(sorted(found, key=lambda item: item[0]))


def layer_numbers(layers: Iterable[int] | None, count: int) -> tuple[int, ...]:
    """The layer numbers to record, ascending; None means all ``count`` of them.

    Raises
    ------
    BadArgument
        If nothing or something other than integers is asked for.
    OutOfRange
        If a layer does not exist.
    """
    return _chosen(layers, count, "layers", "layer")


def kv_head_numbers(kv_heads: Iterable[int] | None, count: int) -> tuple[int, ...]:
    """The kv_heads to record, ascending; None means all ``count`` of them.

    Raises
    ------
    BadArgument, OutOfRange
        As :func:`layer_numbers` does.
    """
    return _chosen(kv_heads, count, "kv_heads", "kv_head")


def _chosen(numbers, count, plural, singular):
    if numbers is None:
        return tuple(range(count))
    try:
        wanted = sorted({number.__index__() for number in numbers})
    except (TypeError, AttributeError):
        raise BadArgument(
            f"{plural} must be whole numbers, such as [0, 10, 20]", got=numbers
        ) from None
    if not wanted:
        raise BadArgument(f"{plural} must name at least one {singular}, or be None for all")
    for number in wanted:
        if not 0 <= number < count:
            raise OutOfRange(f"{plural} must be 0 to {count - 1} in this model", got=number)
    return tuple(wanted)


def _require_no_dropout(model):
    """Under dropout the outputs, and so all deeper queries and keys, are a random draw."""
    torch = require("torch")
    for name, module in model.named_modules():
        if not module.training:
            continue
        rates = [getattr(module, attribute, 0.0) for attribute in DROPOUTS]
        if isinstance(module, torch.nn.Dropout):
            rates.append(module.p)
        if any(isinstance(rate, float) and rate > 0 for rate in rates):
            raise UnsupportedModel(
                "dropout is active",
                where=name or type(model).__name__,
                got="a model in training mode",
                hint="Call model.eval() before recording",
            )
