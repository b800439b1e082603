"""What a trace says about the model and the libraries it came from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from h2o_theory.dependencies import require
from h2o_theory.recorder.registration import NAME
from h2o_theory.store import versions
from h2o_theory.trace import TraceSpec

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from h2o_theory.recorder.session import Session

__all__ = ["describe_model", "describe_sequence"]


def describe_model(model: PreTrainedModel, inner: str, dtype: str) -> dict[str, Any]:
    """What is found in a model of its origin, with its attention implementation and dtype."""
    return {
        "id": _model_id(model.config),
        "family": model.config.model_type,
        "revision": getattr(model.config, "_commit_hash", None) or "",
        "dtype": dtype,
        "attention": inner,
        "rope": _rope(model.config),
    }


def describe_sequence(
    model: PreTrainedModel,
    inner: str,
    session: Session,
    index: int,
    *,
    text_provenance: dict[str, Any],
    model_provenance: dict[str, Any],
    prompt_length: int | None,
    generation: dict[str, Any],
    tokenizer: Any,
) -> TraceSpec:
    """The spec of one sequence of a finished session.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    inner : str
        The attention implementation that did the work.
    session : Session
        After its last pass.
    index : int
        Which of the session's sequences.
    text_provenance, model_provenance : dict
        ``model_provenance`` wins over what is found in the model.
    prompt_length : int or None
        None for the tokens of the first pass.
    generation : dict
    tokenizer : transformers tokenizer or None
        Decodes the token strings to store; None stores none.

    Returns
    -------
    TraceSpec
    """
    settings, sequence = session.settings, session.sequences[index]
    if len(session.sequences) > 1:
        text_provenance = {
            **text_provenance,
            "sequence": index,
            "sequences": len(session.sequences),
        }
    strings = None
    if tokenizer is not None:
        strings = tuple(tokenizer.decode([token]) for token in sequence.token_ids)
    return TraceSpec(
        tokens=len(sequence.token_ids),
        layers=tuple(session.layer_specs[layer] for layer in settings.layers),
        content="attention" if settings.store == "attention" else "qkv",
        dtype=settings.store_dtype,
        model={**describe_model(model, inner, settings.model_dtype), **model_provenance},
        token_ids=tuple(sequence.token_ids),
        token_strings=strings,
        text=text_provenance,
        prompt_length=sequence.prompt_length if prompt_length is None else prompt_length,
        generation=generation,
        versions={
            "recorder": NAME,
            **versions("attention", "recorder", "trace"),
            **{name: require(name).__version__ for name in ("torch", "transformers")},
        },
    )


def _model_id(config):
    """The hub id, or the last folder of a local path: a trace names no one's directories."""
    name = config._name_or_path
    if not name:
        return config.model_type
    return Path(name).name if Path(name).exists() else name


def _rope(config):
    """Rotary parameters as the config states them, empty for families without rotary embedding."""
    parameters = getattr(config, "rope_parameters", None)
    if parameters:
        return dict(parameters)
    return {
        name: getattr(config, name)
        for name in ("rope_theta", "rope_scaling", "rotary_emb_base", "rotary_pct")
        if getattr(config, name, None) is not None
    }
