"""What a trace says about the model and the libraries it came from."""

import platform
from pathlib import Path

import numpy as np

from h2o_theory.recorder.dependencies import require
from h2o_theory.recorder.registration import NAME
from h2o_theory.trace import TraceSpec

__all__ = ["describe"]


def describe(model, inner, session, token_strings, text, provenance):
    """The spec of a finished session.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    inner : str
        The attention implementation that did the work.
    session : Session
        After its last pass.
    token_strings : tuple of str or None
    text, provenance : dict
        ``provenance`` wins over what is found in the model.

    Returns
    -------
    TraceSpec
    """
    settings = session.settings
    found = {
        "id": _model_id(model.config),
        "family": model.config.model_type,
        "revision": getattr(model.config, "_commit_hash", None) or "",
        "dtype": settings.model_dtype,
        "attention": inner,
        "rope": _rope(model.config),
    }
    return TraceSpec(
        tokens=len(session.token_ids),
        layers=tuple(session.layer_specs[layer] for layer in settings.layers),
        content="qkv",
        dtype=settings.dtype,
        model={**found, **provenance},
        token_ids=tuple(session.token_ids),
        token_strings=token_strings,
        text=text,
        prompt_length=session.pass_lengths[0],
        versions={
            "recorder": NAME,
            "python": platform.python_version(),
            "numpy": np.__version__,
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
