"""Systems: how each moves weights and cache, and what it overlaps."""

from dataclasses import dataclass

from h2o_theory.costs.workload import Placement
from h2o_theory.errors import UnknownName

__all__ = ["SYSTEMS", "System", "find_system"]


@dataclass(frozen=True)
class System:
    """The rules of one system.

    Attributes
    ----------
    name : str
    overlap : bool
        Whether the link works while the device computes: a layer takes the longer of both, not
        their sum.
    link_share : float
        Share of the link's bandwidth that its transfers reach.
    host_attention : bool
        Whether attention over the host's part of the cache is computed on the host, so that the
        cache never crosses the link.
    placement : Placement
        Where things lie unless said otherwise.
    whole_tensors : bool
        Whether a share of weights is rounded to whole matrices.
    score_copies, hidden_copies : float
        Matrices [heads, prompt, prompt] and [prompt, width] alive at the peak, for a sequence.
    cache_buffers : float
        Copies on the device of the cache of one layer and batch that lies on the host.
    source : str
        Where the rules come from.
    """

    name: str
    overlap: bool
    link_share: float
    host_attention: bool = False
    placement: Placement = Placement()
    whole_tensors: bool = False
    score_copies: float = 2.0
    hidden_copies: float = 6.0
    cache_buffers: float = 3.0
    source: str = ""


_HOST = Placement((0.0, 1.0), (1.0, 0.0), (1.0, 0.0))

SYSTEMS: dict[str, System] = {
    "flexgen": System(
        "flexgen", overlap=True, link_share=0.8, host_attention=True, whole_tensors=True,
        source="Sheng et al., FlexGen (2023), section 4: zig-zag over batches with six overlapped "
        "streams, attention on the host next to its cache; the released suite of H2O. Pinned "
        "transfers over PCIe 3.0 x16 reach 12 to 13 of 15.75 GB/s",
    ),
    "deepspeed": System(
        "deepspeed", overlap=True, link_share=0.58, placement=_HOST,
        source="Aminabadi et al., DeepSpeed Inference (2022), section 6, ZeRO-Inference: weights "
        "on the host, streamed layer by layer with prefetch, one batch, cache on the device. "
        "link_share is set on one cell of the paper's table 3 (6.7B, 512+32)",
    ),
    "accelerate": System(
        "accelerate", overlap=False, link_share=0.295, placement=_HOST,
        source="documentation of Hugging Face Accelerate, big model inference: a device map, "
        "hooks that fetch a module's weights when it is called and drop them after, nothing "
        "overlapped, memory not pinned. link_share is set on one cell of table 3 (6.7B, "
        "512+1024)",
    ),
    "resident": System(
        "resident", overlap=False, link_share=0.8,
        source="everything on the device, one batch: the plain loop of any library",
    ),
}  # fmt: skip
"""Systems by name."""


def find_system(name: str) -> System:
    """A system by name.

    Raises
    ------
    UnknownName
        With near names.
    """
    key = str(name).strip().lower()
    if key in SYSTEMS:
        return SYSTEMS[key]
    raise UnknownName.of("system", str(name), SYSTEMS)
