"""The KV cache that transformers sees: it counts tokens, while the layers of the loop hold them."""

from transformers.cache_utils import Cache, CacheLayerMixin

__all__ = ["LiveCache"]


class _CountingLayer(CacheLayerMixin):
    """Passes new keys and values on to the attention, where the loop takes them over.

    Token positions are those of the text, whatever the loop still holds, so that the model
    embeds a token where it stands.
    """

    is_sliding = False
    is_croppable = False

    def __init__(self, layer):
        super().__init__()
        self._layer = layer
        self.is_initialized = True

    def lazy_initialization(self, key_states, value_states):
        """Nothing to allocate."""

    def update(self, key_states, value_states, *args, **kwargs):
        """Hand back the new tokens alone."""
        return key_states, value_states

    def get_mask_sizes(self, query_length):
        """As if all past tokens were held; ``query_length`` was a tensor up to transformers 5.0."""
        count = query_length if isinstance(query_length, int) else len(query_length)
        return self._layer.seen + count, 0

    def get_seq_length(self):
        """Tokens seen."""
        return self._layer.seen

    def get_max_length(self):
        """No limit but the loop's own."""
        return -1

    get_max_cache_shape = get_max_length


class LiveCache(Cache):
    """Hand it to the model as its KV cache inside :func:`~h2o_theory.live.closed_loop`.

    Parameters
    ----------
    layers : list of LiveLayer
    """

    def __init__(self, layers):
        super().__init__(layers=[_CountingLayer(layer) for layer in layers])
