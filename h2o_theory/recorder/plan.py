"""What a recording will hold, known from the model's configuration before anything runs."""

from dataclasses import dataclass

from h2o_theory.trace import LayerSpec, TraceSpec

__all__ = ["Geometry", "geometry", "planned_spec"]


@dataclass(frozen=True)
class Geometry:
    """Heads of every layer of a model: their numbers and the width of a key and a value."""

    q_heads: int
    kv_heads: int
    head_dim: int


def geometry(config):
    """The :class:`Geometry` of a config of a recordable family."""
    q_heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or q_heads
    if getattr(config, "multi_query", False):
        kv_heads = 1
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // q_heads
    return Geometry(q_heads, kv_heads, head_dim)


def planned_spec(config, settings, tokens, **details):
    """The spec of a sequence that is about to be recorded, as far as its size depends on it.

    Parameters
    ----------
    config : transformers.PreTrainedConfig
    settings : Settings
    tokens : int or None
        Length of the sequence; None if it is not known beforehand.
    **details
        What else is known of the spec, such as ``token_ids``.

    Returns
    -------
    TraceSpec
        With the shapes and dtype of the trace to come; scaling, softcap and sinks are those of
        the finished trace's own spec and not stated here.
    """
    shape, heads = geometry(config), settings.kv_heads
    layers = tuple(
        LayerSpec(
            layer=layer,
            q_heads=len(heads) * (shape.q_heads // shape.kv_heads),
            kv_heads=len(heads),
            head_dim=0 if settings.store == "attention" else shape.head_dim,
            value_dim=0 if settings.store == "qk" else shape.head_dim,
            scaling=1.0,
            kv_head_ids=heads,
        )
        for layer in settings.layers
    )
    content = "attention" if settings.store == "attention" else "qkv"
    return TraceSpec(tokens, layers, content, settings.dtype, **details)
