"""The pair of functions through which transformers calls the recorder.

Transformers looks attention up by name in two tables: one for the attention function, one for
the function that builds its mask. A name missing from the second silently loses the mask, so
both halves are registered under one name. The name avoids the substrings (``sdpa``, ``flash``,
``flex_attention``) that transformers treats specially, and carries a version, so that two
releases imported into one process do not overwrite each other.

Calls are routed by what they concern, never by a process-wide current recorder: an attention
call by its module, a mask by the identity of its config. Two models can be recorded in two
threads.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from h2o_theory.errors import BadArgument, RecordingRefused, UnsupportedModel

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel

__all__ = ["NAME", "intercepted"]

NAME = "h2o_theory_recorder_v2"

_sessions = weakref.WeakKeyDictionary()
"""Attention module -> the session that records it."""

_inner_names = {}
"""id(config) -> name of the implementation that does the work while NAME is in place."""


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Run the inner attention unchanged, then hand the session what went in and what came out.

    A session with a ``compute`` takes the place of the inner attention instead.
    """
    inner = _inner_name(module.config)
    function = _inner_function(module, inner)
    session = _sessions.get(module)
    if session is None:
        return function(module, query, key, value, attention_mask, **options)
    session.require_call(module.layer_idx, query, key, inner, options)
    causal = options.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    call = {
        "tensors": (query, key, value),
        "mask": attention_mask,
        "inner": inner,
        "options": options,
        "causal": bool(causal),
    }
    if hasattr(session, "compute"):
        return session.compute(module.layer_idx, **call), None
    result = function(module, query, key, value, attention_mask, **options)
    session.capture(module.layer_idx, output=result[0], **call)
    return result


def build_mask(*args: Any, config: PreTrainedConfig, **options: Any) -> torch.Tensor | None:
    """Build the mask exactly as the inner implementation would."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    function = ALL_MASK_ATTENTION_FUNCTIONS[_inner_name(config)]
    return function(*args, config=config, **options)


@contextlib.contextmanager
def intercepted(
    model: PreTrainedModel, modules: Iterable[torch.nn.Module], session: Any
) -> Iterator[None]:
    """Route the given attention modules of a model through a session inside the block.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    modules : iterable of torch.nn.Module
        The attention modules to record. The model's other layers pass through untouched.
    session : object with ``require_call`` and either ``capture`` or ``compute``

    Raises
    ------
    BadArgument
        If the model, or one that shares its config, is being recorded already.
    UnsupportedModel
        If the model does not accept another attention implementation.
    """
    _register()
    config, inner = model.config, model.config._attn_implementation
    modules = list(modules)
    configs = {id(config), *(id(module.config) for module in modules)}
    if inner == NAME or any(key in _inner_names for key in configs):
        raise BadArgument(
            "this model is being recorded already",
            where=type(model).__name__,
            hint="Leave the first recording before starting another",
        )
    for key in configs:
        _inner_names[key] = inner
    for module in modules:
        _sessions[module] = session
    try:
        model.set_attn_implementation(NAME)
        if any(part._attn_implementation != NAME for part in (config, modules[0].config)):
            raise UnsupportedModel(
                "the model does not take its attention from transformers' interface",
                where=type(model).__name__,
            )
        yield
    finally:
        model.set_attn_implementation(inner)
        for module in modules:
            _sessions.pop(module, None)
        for key in configs:
            _inner_names.pop(key, None)


def _register():
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, build_mask)


def _inner_name(config):
    try:
        return _inner_names[id(config)]
    except KeyError:
        raise RecordingRefused(
            "a copy of a model made while it was recorded still points at the recorder",
            where=config.model_type,
            hint="Call set_attn_implementation('sdpa') on the copy",
        ) from None


def _inner_function(module, name):
    """The inner implementation as the module's own code would have found it."""
    for cls in type(module).__mro__:
        namespace = vars(sys.modules[cls.__module__])
        if name == "eager" and "eager_attention_forward" in namespace:
            return namespace["eager_attention_forward"]
        if name != "eager" and "ALL_ATTENTION_FUNCTIONS" in namespace:
            return namespace["ALL_ATTENTION_FUNCTIONS"][name]
    raise UnsupportedModel(
        f"the {name} attention of this module cannot be found", where=type(module).__name__
    )
