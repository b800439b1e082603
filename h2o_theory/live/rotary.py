"""The rotary embedding of a running model, for policies that look at queries before it."""

from h2o_theory.engine.tensors import stated_rotary
from h2o_theory.recorder.models import LoadedModel
from h2o_theory.recorder.provenance import describe_model

__all__ = ["rotary_of_model"]


def rotary_of_model(model, head_dim):
    """``(theta, width)`` of a model's rotary embedding; None if it has none.

    Raises
    ------
    BadArgument
        As :func:`h2o_theory.engine.tensors.rotary_of`.
    """
    model = model.model if isinstance(model, LoadedModel) else model
    return stated_rotary(describe_model(model, "", ""), head_dim, type(model).__name__)
