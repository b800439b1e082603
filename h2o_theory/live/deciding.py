"""Who decides in each layer of a model when one policy runs in all of them."""

from h2o_theory.live.chooser import ModelWideChooser, ModelWideSet, chooser_for, keep_all
from h2o_theory.live.rotary import rotary_of_model
from h2o_theory.policies import Context

__all__ = ["deciding"]


def deciding(model, policy, budgets, tokens, prefill, seed):
    """The ``choosers`` of :func:`~h2o_theory.live.loop.following` for a policy.

    Parameters
    ----------
    model : transformers.PreTrainedModel or LoadedModel
    policy : Policy or PlainPolicy
    budgets : dict
        ``{(layer, kv_head): tokens}``, equal where kv_heads share a set.
    tokens, prefill, seed : int

    Returns
    -------
    callable (layer, kv_heads) -> list of (tuple of int, chooser)
    """
    if policy.scope == "model":
        return _model_wide(policy, budgets, tokens, prefill, seed)

    def rotary(head_dim):
        return rotary_of_model(model, head_dim)

    def choosers(layer, kv_heads):
        shared = policy.scope == "layer"
        units = [tuple(range(kv_heads))] if shared else [(head,) for head in range(kv_heads)]
        contexts = [
            Context(budgets[layer, heads[0]], tokens, prefill, layer, heads[0], seed)
            for heads in units
        ]
        return [
            (heads, chooser_for(policy, context, rotary))
            for heads, context in zip(units, contexts, strict=True)
        ]

    return choosers


def _model_wide(policy, budgets, tokens, prefill, seed):
    """One set for all layers: they are as many as have budgets."""
    (budget,) = set(budgets.values())
    if budget >= tokens:
        return lambda layer, kv_heads: [(tuple(range(kv_heads)), keep_all(tokens))]
    layers = len({layer for layer, _ in budgets})
    shared = ModelWideSet(policy, Context(budget, tokens, prefill, 0, 0, seed), layers)
    return lambda layer, kv_heads: [(tuple(range(kv_heads)), ModelWideChooser(shared))]
