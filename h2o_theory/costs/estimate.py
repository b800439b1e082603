"""Time and memory of one run: the model itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from h2o_theory.costs.case import Case
from h2o_theory.costs.constants import IDEAL, Constants
from h2o_theory.costs.memory import Peaks, device_weights, peak_memory
from h2o_theory.errors import BadArgument

__all__ = ["CostEstimate", "Phase", "decode_at_peak", "estimate", "prefill_at_peak"]


@dataclass(frozen=True)
class Phase:
    """Time of the prompt's pass, or of all decoding steps.

    Attributes
    ----------
    seconds : float
    terms : mapping of str to float
        Seconds by cause. Where link and device overlap, the shorter of both is not in `seconds`.
    bound : str
        The cause that takes longest.
    """

    seconds: float
    terms: Mapping[str, float] = field(default_factory=dict)

    @property
    def bound(self) -> str:
        """The cause that takes longest."""
        return max(self.terms, key=lambda name: self.terms[name])


@dataclass(frozen=True)
class CostEstimate:
    """What a run comes to.

    Attributes
    ----------
    case : Case
    prefill, decode : Phase
    peaks : Peaks
        Memory.
    """

    case: Case
    prefill: Phase
    decode: Phase
    peaks: Peaks

    @property
    def latency(self) -> float:
        """Seconds from the prompt to the last token."""
        return self.prefill.seconds + self.decode.seconds

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens of all sequences over the latency: the paper's metric."""
        return self.case.workload.sequences * self.case.workload.generate / self.latency


def prefill_at_peak(case: Case) -> dict[str, float]:
    r"""Seconds at peak of the parts of the prompt's pass, over all batches.

    With P parameters, s tokens, b sequences, L layers, H heads of dimension d and peaks B
    (bytes/s) and F (flop/s):

    .. math:: flops = (2 P s + 4 L H d s^2) b / F, \quad scores = 2 L H s^2 b / B, \quad
              store = b \sum_l c\, n_l(s) / B

    The attention of a prompt computes the whole square; scores are counted in 2 bytes.
    """
    model, load, device = case.model, case.workload, case.hardware
    square = model.layers * model.heads * load.prompt**2
    operations = 2 * model.parameters * load.prompt + 4 * square * model.head_dim
    kept = case.policy.entries(model.layers, load.prompt).sum() * case.policy.entry_bytes(model)
    return {
        "flops": operations * load.sequences / device.flops,
        "scores": model.number_bytes * square * load.sequences / device.bandwidth,
        "store": kept * load.sequences * case.placed.cache[0] / device.bandwidth,
    }


def decode_at_peak(case: Case) -> dict[str, float]:
    r"""Seconds at peak of the parts of all decoding steps on the device, over all batches.

    With W bytes of weights, n batches of b sequences and m steps:

    .. math:: weights = m n W / B, \quad cache = m n b \sum_l c\, \bar n_l / B, \quad
              bookkeeping = m n b H \sum_l \bar n_l / B \text{ for each byte}

    where the mean entries are over the steps. Weights that are streamed are read again, from the
    device's memory, by every batch.
    """
    model, load, device = case.model, case.workload, case.hardware
    entries = case.policy.mean_entries(model.layers, load).sum() * load.sequences * load.steps
    share = case.placed.cache[0]
    return {
        "weights": load.steps * load.batches * model.weight_bytes / device.bandwidth,
        "cache": share * entries * case.policy.entry_bytes(model) / device.bandwidth,
        "bookkeeping": case.policy.bookkeeping * entries * model.heads / device.bandwidth,
    }


def estimate(case: Case, constants: Constants = IDEAL) -> CostEstimate:
    """Time and memory of a run.

    Each decoding step goes through the layers; a layer fetches its weights over the link once for
    all batches. Device, host attention and overhead come one after the other; the link works
    beside them (zig-zag) or in turn, as the schedule says.

    Parameters
    ----------
    case : Case
    constants : Constants

    Returns
    -------
    CostEstimate

    Raises
    ------
    BadBudget
        For a budget above the length of the run.
    BadArgument
        If something lies on a host or disk that the hardware does not have.
    """
    case.policy.check(case.workload)
    _require_places(case)
    return CostEstimate(
        case, _prefill(case, constants), _decode(case, constants), peak_memory(case)
    )


def _require_places(case: Case) -> None:
    placed = case.placed
    for name in ("weights", "cache", "activations"):
        device, host = getattr(placed, name)
        if device < 1 and not case.hardware.link:
            raise BadArgument(
                "nothing can lie outside a device without a link",
                where=f"{name} on {case.hardware.name}",
                hint="Place everything on the device, or give the hardware a link",
            )
        if device + host < 1 - 1e-9 and not case.hardware.disk:
            raise BadArgument(
                "nothing can lie on the disk of hardware without one",
                where=f"{name} on {case.hardware.name}",
                got=f"{1 - device - host:.0%}",
                hint="Give the hardware a disk, in bytes a second",
            )


def _streamed(case: Case) -> tuple[float, float]:
    """Bytes of weights that cross the link, and that come from the disk, in each pass."""
    away = case.model.weight_bytes - device_weights(case)
    disk = max(0.0, 1 - sum(case.placed.weights)) * case.model.weight_bytes
    return away, min(away, disk)


def _link_seconds(case: Case, size: float, from_disk: float) -> float:
    if not size:
        return 0.0
    seconds = size / (case.system.link_share * case.hardware.link)
    if not from_disk:
        return seconds
    slow = from_disk / case.hardware.disk
    return max(seconds, slow) if case.system.overlap else seconds + slow


def _prefill(case: Case, constants: Constants) -> Phase:
    peak, (size, disk) = prefill_at_peak(case), _streamed(case)
    model, load = case.model, case.workload
    kept = case.policy.entries(model.layers, load.prompt).sum() * case.policy.entry_bytes(model)
    stored = kept * load.sequences * (1 - case.placed.cache[0])
    device = {
        "arithmetic": constants.flops * peak["flops"],
        "attention scores": constants.scores * peak["scores"],
        "storing the cache": constants.store * peak["store"],
    }
    link = {
        "weights over the link": _link_seconds(case, size, disk),
        "cache over the link": _link_seconds(case, stored, 0),
    }
    return _together(device, link, case.system.overlap)


def _decode(case: Case, constants: Constants) -> Phase:
    model, load = case.model, case.workload
    peak, (size, disk) = decode_at_peak(case), _streamed(case)
    entries = case.policy.mean_entries(model.layers, load).sum() * load.sequences * load.steps
    away = entries * case.policy.entry_bytes(model) * (1 - case.placed.cache[0])
    on_disk = entries * case.policy.entry_bytes(model) * max(0.0, 1 - sum(case.placed.cache))
    operations = 2 * model.parameters * load.sequences * load.steps / case.hardware.flops
    reading, computing = constants.weights * peak["weights"], constants.flops * operations
    on_host = case.system.host_attention and away > 0
    pairs = model.layers * load.batches * load.steps
    device = {
        "weights on the device": reading if reading >= computing else 0.0,
        "arithmetic": computing if computing > reading else 0.0,
        "cache on the device": constants.cache * peak["cache"],
        "bookkeeping": constants.bookkeeping * peak["bookkeeping"],
        "attention on the host": away / constants.host_attention if on_host else 0.0,
        "handing over to the host": constants.host_overhead * pairs if on_host else 0.0,
        "overhead": constants.overhead * pairs,
    }
    crossing = 0.0 if on_host else away
    link = {
        "weights over the link": load.steps * _link_seconds(case, size, disk),
        "cache over the link": _link_seconds(case, crossing, min(crossing, on_disk)),
    }
    return _together(device, link, case.system.overlap)


def _together(device: dict[str, float], link: dict[str, float], overlap: bool) -> Phase:
    times = sum(device.values()), sum(link.values())
    terms = {name: seconds for name, seconds in (device | link).items() if seconds > 0}
    return Phase(float(np.max(times) if overlap else np.sum(times)), terms)
