"""Which models can be recorded, and where their attention modules are."""

from h2o_theory.errors import BadArgument, OutOfRange, UnsupportedModel
from h2o_theory.recorder.dependencies import require

__all__ = ["FAMILIES", "INNER", "attention_modules", "check_layers", "check_model"]

FAMILIES = ("llama", "opt", "gpt_neox")
"""Architectures (``config.model_type``) whose recorded rows are tested against the model's own."""

INNER = ("sdpa", "eager")
"""Attention implementations that can do the work inside the recorder."""

DROPOUTS = ("attention_dropout", "dropout", "hidden_dropout", "layerdrop")


def check_model(model):
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
        For an untested family, an inner attention other than sdpa or eager, active dropout, or
        attention modules that are not where the family has them.
    """
    if not isinstance(model, require("transformers").PreTrainedModel):
        raise BadArgument(
            "only a transformers model can be recorded",
            where="model",
            got=type(model).__name__,
            expected="a PreTrainedModel or the result of load_model",
        )
    family = model.config.model_type
    if family not in FAMILIES:
        raise UnsupportedModel(
            "the attention of this family is not known to be recordable",
            where=type(model).__name__,
            got=family,
            expected=" or ".join(FAMILIES),
        )
    inner = model.config._attn_implementation
    if inner not in INNER:
        raise UnsupportedModel(
            "the model's attention implementation cannot be recorded",
            where=type(model).__name__,
            got=inner,
            expected=" or ".join(INNER),
            hint="Load the model with attn_implementation='sdpa'",
        )
    _refuse_dropout(model)
    return attention_modules(model)


def attention_modules(model):
    """Attention modules by layer number; every layer of the config must have exactly one."""
    found = [
        (module.layer_idx, module)
        for module in model.modules()
        if type(module).__name__.endswith("Attention")
        and isinstance(getattr(module, "layer_idx", None), int)
        and hasattr(module, "config")
    ]
    expected = list(range(model.config.num_hidden_layers))
    if sorted(layer for layer, _ in found) != expected:
        raise UnsupportedModel(
            "the attention modules are not where this family has them",
            where=type(model).__name__,
            got=f"{len(found)} attention modules",
            expected=f"one in each of {len(expected)} layers",
        )
    return dict(sorted(found, key=lambda item: item[0]))


def check_layers(layers, count):
    """The layer numbers to record, ascending; None means all ``count`` of them.

    Raises
    ------
    BadArgument
        If nothing or something other than integers is asked for.
    OutOfRange
        If a layer does not exist.
    """
    if layers is None:
        return tuple(range(count))
    try:
        wanted = sorted({layer.__index__() for layer in layers})
    except (TypeError, AttributeError):
        raise BadArgument(
            "layers must be integers", where="layers", got=layers, expected="such as [0, 10, 20]"
        ) from None
    if not wanted:
        raise BadArgument("no layer is asked for", where="layers")
    for layer in wanted:
        if not 0 <= layer < count:
            raise OutOfRange(
                "the model has no such layer",
                where="layers",
                got=layer,
                expected=f"0 to {count - 1}",
            )
    return tuple(wanted)


def _refuse_dropout(model):
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
