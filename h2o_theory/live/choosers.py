"""Who decides in each layer of a model when one policy runs in all of them."""

from collections.abc import Callable
from typing import Any

from h2o_theory.engine.admission import Run
from h2o_theory.live.admission import rotary_of_model
from h2o_theory.live.chooser import ModelWideChooser, ModelWideSet, chooser_for, keep_all

__all__ = ["choosers_of"]


def choosers_of(model: Any, run: Run) -> Callable[[int, int], list[tuple[tuple[int, ...], Any]]]:
    """The ``choosers`` of :func:`~h2o_theory.live.loop.following` for a run.

    Returns
    -------
    callable (layer, kv_heads) -> list of (tuple of int, chooser)
    """
    if run.policy.scope == "model":
        return _model_wide(run)

    def rotary(head_dim):
        return rotary_of_model(model, head_dim)

    def choosers(layer, kv_heads):
        shared = run.policy.scope == "layer"
        units = [tuple(range(kv_heads))] if shared else [(head,) for head in range(kv_heads)]
        return [
            (heads, chooser_for(run.policy, run.context(layer, heads[0]), rotary))
            for heads in units
        ]

    return choosers


def _model_wide(run):
    """One set for all layers: they are as many as have budgets."""
    layers = {layer for layer, _ in run.tokens}
    context = run.context(min(layers), 0)
    if context.budget >= run.length:
        return lambda layer, kv_heads: [(tuple(range(kv_heads)), keep_all(run.length))]
    shared = ModelWideSet(run.policy, context, len(layers))
    return lambda layer, kv_heads: [(tuple(range(kv_heads)), ModelWideChooser(shared))]
