"""Peak memory on device and host, and the largest batch that fits."""

import dataclasses
from dataclasses import dataclass

from h2o_theory.costs.case import Case
from h2o_theory.costs.units import bytes_in_words
from h2o_theory.costs.workload import whole_tensors
from h2o_theory.errors import BadArgument

__all__ = ["Peaks", "device_weights", "fits", "largest_batch", "peak_memory", "require_fit"]

_MOST = 1 << 16


@dataclass(frozen=True)
class Peaks:
    """Peak bytes on the device and on the host."""

    device: float
    host: float


def device_weights(case: Case) -> float:
    """Bytes of weights that stay on the device."""
    share = case.placed.weights[0]
    if share in (0.0, 1.0) or not case.system.whole_tensors:
        return share * case.model.weight_bytes
    return whole_tensors(share, case.model) * case.model.layers * case.model.block_bytes


def peak_memory(case: Case) -> Peaks:
    r"""Peak bytes of a run, reached in the pass over the prompt or at the last step.

    On the device: weights that stay, one block of those that are streamed, the cache that stays,
    and, for a batch of b sequences with a prompt of s tokens,

    .. math:: b (a_{score} H s^2 w + a_{hidden} s n w) + a_{cache} \, b \, c \max_l n_l

    the last term if the cache lies on the host. Nothing is fitted: the copies a are counted in the
    released code of H2O (2 score matrices before its last revision, 4 after it, which takes the
    softmax in float32), see :class:`~h2o_theory.costs.systems.System`.
    """
    model, load, system, placed = case.model, case.workload, case.system, case.placed
    held = case.policy.entries(model.layers, load.tokens)
    entry = case.policy.entry_bytes(model) + case.policy.slot_bytes * model.heads
    cache = load.sequences * float(held.sum()) * entry
    hidden = load.prompt * model.width * model.number_bytes
    scores = model.heads * load.prompt**2 * model.number_bytes
    resident = device_weights(case)
    streamed = model.block_bytes * (1 - resident / model.weight_bytes)
    work = load.batch * (system.score_copies * scores + system.hidden_copies * hidden)
    work += (load.batches - 1) * load.batch * hidden * placed.activations[0]
    if placed.cache[0] < 1:
        work += system.cache_buffers * load.batch * float(held.max()) * entry
    device = resident + streamed + placed.cache[0] * cache + work
    host = placed.weights[1] * model.weight_bytes + placed.cache[1] * cache
    host += placed.activations[1] * load.sequences * hidden
    return Peaks(device, host)


def fits(case: Case) -> bool:
    """Whether the peaks stay within device and host."""
    peaks = peak_memory(case)
    host = case.hardware.host_memory if case.hardware.link else float("inf")
    return peaks.device <= case.hardware.available_memory and peaks.host <= host


def largest_batch(case: Case) -> int:
    """The largest batch that fits, everything else as in ``case``; 0 if not even one does."""
    low, high = 0, 1
    while high <= _MOST and fits(case.with_batch(high)):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(case.with_batch(middle)) else (low, middle)
    return low


def require_fit(case: Case) -> None:
    """Raise BadArgument for a run that does not fit, and say what would.

    Raises
    ------
    BadArgument
        With the largest batch that fits, or the share of weights, or the budget.
    """
    if fits(case):
        return
    peaks, batch = peak_memory(case), largest_batch(case)
    raise BadArgument(
        "the run does not fit",
        where=f"{case.model.name}, {case.policy.name}, batch {case.workload.batch} on "
        f"{case.hardware.name}",
        got=f"{bytes_in_words(peaks.device)} on the device and {bytes_in_words(peaks.host)} on "
        "the host",
        expected=f"at most {bytes_in_words(case.hardware.available_memory)} and "
        f"{bytes_in_words(case.hardware.host_memory)}",
        hint=_what_would(case, batch),
    )


def _what_would(case: Case, batch: int) -> str:
    if batch:
        return f"A batch of {batch} fits"
    one = case.with_batch(1)
    entries = case.workload.tokens
    while entries > 1:
        entries //= 2
        smaller = dataclasses.replace(one.policy, budget=(float(entries),))
        if fits(dataclasses.replace(one, policy=smaller)):
            return f"A batch of 1 with {entries} entries fits"
    if device_weights(one) and case.hardware.link:
        return "Not even one sequence fits beside the weights: place some of them on the host"
    return "Not even one sequence fits: take a smaller model or larger hardware"
