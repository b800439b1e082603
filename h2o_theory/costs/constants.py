"""What hardware does not tell: how far a program stays behind the peaks."""

from dataclasses import dataclass, fields

from h2o_theory.errors import BadArgument

__all__ = ["IDEAL", "Constants"]


@dataclass(frozen=True)
class Constants:
    """Constants of a program on some hardware; ``IDEAL`` is the roofline.

    The first six multiply times at peak, so that they carry over to other hardware.

    Attributes
    ----------
    weights, cache : float
        Time to read the weights, and the visible cache, over bytes / bandwidth.
    bookkeeping : float
        Bytes, at peak bandwidth, for each entry and query head at a step of H2O.
    flops : float
        Time of the prompt's arithmetic over operations / peak.
    scores : float
        Passes over the matrix of attention scores [heads, prompt, prompt] of the prompt.
    store : float
        Time to store the prompt's keys and values over bytes / bandwidth.
    host_attention : float
        Bytes of the cache a second that attention on the host reaches.
    host_overhead : float
        Seconds of each layer and batch at a step, if attention is computed on the host.
    overhead : float
        Seconds of each layer and batch at a step, wherever attention is computed.
    source : str
    """

    weights: float = 1.0
    cache: float = 1.0
    bookkeeping: float = 0.0
    flops: float = 1.0
    scores: float = 0.0
    store: float = 1.0
    host_attention: float = float("inf")
    host_overhead: float = 0.0
    overhead: float = 0.0
    source: str = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "source" and not value >= 0:
                raise BadArgument(f"{field.name} must be at least 0", where="constants", got=value)


IDEAL = Constants(source="peaks of the data sheet, nothing else")
