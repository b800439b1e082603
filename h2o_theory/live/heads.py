"""Layers and kv_heads of a model, before it runs."""

from h2o_theory.budgets import KvHeads
from h2o_theory.recorder.admission import recordable_modules
from h2o_theory.recorder.models import LoadedModel

__all__ = ["heads_of"]


def heads_of(model, tokens):
    """The :class:`KvHeads` of a model that is to read T = ``tokens``.

    Parameters
    ----------
    model : transformers.PreTrainedModel or LoadedModel
    tokens : int

    Raises
    ------
    BadArgument, UnsupportedModel
        As :func:`~h2o_theory.recorder.admission.recordable_modules`.
    """
    model = model.model if isinstance(model, LoadedModel) else model
    layers, config = tuple(recordable_modules(model)), model.config
    count = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return KvHeads(tokens, layers, 1 if getattr(config, "multi_query", False) else count)
