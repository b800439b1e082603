"""Keys and values rounded to a few bits when they enter the cache."""

import torch

from h2o_theory.errors import BadArgument

__all__ = ["Quantiser", "fake_quantise"]


def fake_quantise(tensor, bits, group):
    r"""Round each group of channels to :math:`2^b` evenly spaced values between its extremes.

    .. math:: q(x) = x_{min} + s \, \mathrm{round}\!\Big(\frac{x - x_{min}}{s}\Big), \qquad
              s = \frac{x_{max} - x_{min}}{2^b - 1}

    Parameters
    ----------
    tensor : torch.Tensor [..., d]
    bits : int
    group : int
        Channels that share a scale; the last group may be shorter.

    Returns
    -------
    torch.Tensor like ``tensor``
    """
    parts = []
    for part in tensor.float().split(group, dim=-1):
        low, high = part.amin(dim=-1, keepdim=True), part.amax(dim=-1, keepdim=True)
        step = (high - low).clamp_min(torch.finfo(torch.float32).tiny) / (2**bits - 1)
        parts.append(low + step * torch.round((part - low) / step))
    return torch.cat(parts, dim=-1).to(tensor.dtype)


class Quantiser:
    """Rounds what enters the cache, token by token; also the query's own key and value.

    As in FlexGen, with which the H2O paper combines its policy: asymmetric, a scale and an offset
    for each token and ``group`` of channels. Departure: FlexGen attends to the newest entry before
    it is rounded.

    Parameters
    ----------
    bits : int
        1 to 8.
    group : int
    """

    def __init__(self, bits=4, group=64):
        if not 1 <= bits <= 8 or group < 1:
            raise BadArgument(
                "no such rounding",
                where="bits, group",
                got=f"{bits} bits, groups of {group}",
                expected="1 to 8 bits, groups of at least 1 channel",
            )
        self.bits, self.group = bits, group

    def __call__(self, keys, values):
        """Rounded keys [h, n, d] and values [h, n, dv]."""
        return tuple(fake_quantise(part, self.bits, self.group) for part in (keys, values))

    def entry_bytes(self, key_channels, value_channels):
        """Bytes of one entry: bits of its channels, and two half-precision numbers per group."""
        groups = sum(-(-channels // self.group) for channels in (key_channels, value_channels))
        return (key_channels + value_channels) * self.bits / 8 + 4 * groups
