"""What is run: lengths and batches, and where weights, cache and activations lie."""

from dataclasses import dataclass

from h2o_theory.costs.shapes import ModelShape
from h2o_theory.errors import BadArgument

__all__ = ["Placement", "Workload", "parse_placement"]


@dataclass(frozen=True)
class Workload:
    """One run of generation.

    Attributes
    ----------
    prompt, generate : int
        Tokens read at once, and tokens generated, of each sequence.
    batch : int
        Sequences that the device works on together.
    batches : int
        Such batches in flight: each layer's weights are fetched once for all of them (zig-zag).
    """

    prompt: int
    generate: int
    batch: int = 1
    batches: int = 1

    def __post_init__(self) -> None:
        for name in ("prompt", "generate", "batch", "batches"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BadArgument(f"{name} must be a whole number of at least 1", got=repr(value))

    @property
    def sequences(self) -> int:
        """Sequences of all batches."""
        return self.batch * self.batches

    @property
    def tokens(self) -> int:
        """Length of a sequence at the end."""
        return self.prompt + self.generate

    @property
    def steps(self) -> int:
        """Decoding steps: the prompt's pass already gives the first token."""
        return self.generate - 1


@dataclass(frozen=True)
class Placement:
    """Shares of weights, cache and activations on the device and on the host; the rest on disk.

    Attributes
    ----------
    weights, cache, activations : tuple of float
        Shares on the device and on the host.

    Raises
    ------
    BadArgument
        For shares that are negative or sum to more than 1.
    """

    weights: tuple[float, float] = (1.0, 0.0)
    cache: tuple[float, float] = (1.0, 0.0)
    activations: tuple[float, float] = (1.0, 0.0)

    def __post_init__(self) -> None:
        for name in ("weights", "cache", "activations"):
            shares = getattr(self, name)
            if len(shares) != 2 or min(shares) < 0 or sum(shares) > 1 + 1e-9:
                raise BadArgument(
                    f"{name} must be shares of at least 0 on device and host that sum to at most 1",
                    where="placement",
                    got=shares,
                )

    @property
    def offloads(self) -> bool:
        """Whether anything lies outside the device."""
        return min(self.weights[0], self.cache[0], self.activations[0]) < 1


def parse_placement(text: str) -> Placement:
    """FlexGen's six percentages: weights, cache and activations, each on device and host.

    >>> parse_placement("0 100 0 100 0 100").cache
    (0.0, 1.0)

    Raises
    ------
    BadArgument
        For anything but six numbers from 0 to 100.
    """
    words = text.replace(",", " ").split()
    try:
        numbers = [float(word) / 100 for word in words]
    except ValueError:
        numbers = []
    if len(numbers) != 6 or not all(0 <= number <= 1 for number in numbers):
        raise BadArgument(
            "a placement must be six percentages: weights, cache and activations, each on the "
            "device and on the host",
            got=repr(text),
            expected="for example 100,0,100,0,100,0",
        )
    pairs = [(numbers[i], numbers[i + 1]) for i in (0, 2, 4)]
    return Placement(*pairs)


def whole_tensors(share: float, model: ModelShape) -> float:
    """The share of a block's bytes on the device if only whole matrices are placed.

    A matrix goes to the device if the middle of its bytes, counted through its half of the block,
    lies within the share: FlexGen's rule, by which 20 % of the weights of OPT come to one of four
    matrices of the attention and none of the MLP.

    >>> from h2o_theory.costs.shapes import find_shape
    >>> round(whole_tensors(0.2, find_shape("opt-30b")), 4)
    0.0833
    """
    width, inner = model.width, model.heads * model.head_dim
    keys = model.kv_heads * model.head_dim
    attention = [width * inner, width * keys, width * keys, width * inner]
    mlp = [width * model.ffn] * (3 if model.gated else 2)
    placed = 0.0
    for half in (attention, mlp):
        before, whole = 0, sum(half)
        for size in half:
            if before + size / 2 < share * whole:
                placed += size
            before += size
    return placed / model.block_parameters
