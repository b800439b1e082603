"""Constants fitted on some rows of the logs and tested on the others."""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from h2o_theory.costs.constants import Constants
from h2o_theory.costs.estimate import decode_at_peak, estimate, prefill_at_peak
from h2o_theory.costs.published import A100_LOGS, T4_LOGS, LogRow

__all__ = [
    "HoldOut",
    "a100_constants",
    "best_design",
    "constants_for",
    "fit_a100",
    "fit_t4",
    "hold_out",
    "least_squares",
    "t4_constants",
]

_DECODE = {"weights": 1.0, "cache": 1.0, "bookkeeping": 0.0}
_PREFILL = {"flops": 1.0, "scores": 0.0, "store": 1.0}
"""What is fitted on the A100, with its least value: no program beats a peak."""


def least_squares(
    parts: NDArray[np.float64], measured: NDArray[np.float64], least: Sequence[float]
) -> NDArray[np.float64]:
    r"""Constants x at least `least` that minimise the squared relative errors.

    .. math:: \min_{x \ge l} \sum_i \left( \frac{(A x)_i}{y_i} - 1 \right)^2

    Every subset of constants is tried at its bound, so that the minimum is exact; among several,
    as with fewer independent rows than constants, the one with fewest constants off their bound.

    Parameters
    ----------
    parts : float64 [rows, constants]
    measured : float64 [rows]
    least : sequence of float

    Returns
    -------
    float64 [constants]

    Examples
    --------
    >>> least_squares(np.eye(2), np.array([3.0, 0.5]), [1, 1])
    array([3., 1.])
    """
    scaled = parts / measured[:, None]
    low = np.asarray(least, float)
    rest = 1 - scaled @ low
    best, found = float(rest @ rest), low
    for count in range(1, len(low) + 1):
        for free in map(list, itertools.combinations(range(len(low)), count)):
            step = np.linalg.lstsq(scaled[:, free], rest, rcond=None)[0]
            if (step < 0).any():
                continue
            error = rest - scaled[:, free] @ step
            if float(error @ error) < best * (1 - 1e-9) - 1e-15:
                best, found = float(error @ error), low.copy()
                found[free] += step
    return found


def fit_a100(rows: Sequence[LogRow]) -> Constants:
    """Six constants from rows that lie on the device: three of decoding, three of the prompt."""
    decode = least_squares(*_decode_parts(rows), list(_DECODE.values()))
    prefill = least_squares(*_prefill_parts(rows), list(_PREFILL.values()))
    values = dict(zip((*_DECODE, *_PREFILL), map(float, (*decode, *prefill)), strict=True))
    return Constants(**values, source="fitted on " + "; ".join(row.name for row in rows))


def _decode_parts(rows: Sequence[LogRow]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    parts = [[decode_at_peak(row.case)[name] for name in _DECODE] for row in rows]
    return np.asarray(parts), np.asarray([row.seconds[1] for row in rows])


def _prefill_parts(rows: Sequence[LogRow]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    parts = [[prefill_at_peak(row.case)[name] for name in _PREFILL] for row in rows]
    return np.asarray(parts), np.asarray([row.seconds[0] for row in rows])


def fit_t4(rows: Sequence[LogRow], base: Constants) -> Constants:
    """Three constants of a host that computes attention, the others taken from an A100.

    The share of peak arithmetic of the prompt, the rate of attention on the host, and the seconds
    of each layer and batch that nothing overlaps. The link is taken to be the shorter side.
    """
    bare = replace(base, host_overhead=0.0, host_attention=float("inf"), flops=0.0)
    prefill, decode, parts, operations = [], [], [], []
    for row in rows:
        case, device = row.case, estimate(row.case, bare)
        load, model = case.workload, case.model
        entries = case.policy.mean_entries(model.layers, load).sum() * load.sequences * load.steps
        pairs = model.layers * load.batches * load.steps
        parts.append([entries * case.policy.entry_bytes(model), pairs])
        on_device = (
            "weights on the device", "cache on the device", "bookkeeping", "attention scores",
            "storing the cache",
        )  # fmt: skip
        gone = [sum(phase.terms.get(name, 0.0) for name in on_device)
                for phase in (device.prefill, device.decode)]  # fmt: skip
        prefill.append(row.seconds[0] - gone[0])
        decode.append(row.seconds[1] - gone[1])
        operations.append([prefill_at_peak(case)["flops"]])
    flops = least_squares(np.asarray(operations), np.asarray(prefill), [1.0])
    host = least_squares(np.asarray(parts), np.asarray(decode), [0.0, 0.0])
    rate = 1 / float(host[0]) if host[0] else float("inf")
    names = "; ".join(row.name for row in rows)
    return replace(
        base, flops=float(flops[0]), host_attention=rate, host_overhead=float(host[1]),
        source=f"host and arithmetic fitted on {names}; the rest carried over from an A100",
    )  # fmt: skip


@dataclass(frozen=True)
class HoldOut:
    """Errors of constants on rows that they were not fitted on, as share of the measured value.

    Attributes
    ----------
    fitted, tested : tuple of int
        Indices of the rows.
    constants : Constants
    prefill, decode, throughput : tuple of float
        Predicted / measured - 1, of the tested rows.
    """

    fitted: tuple[int, ...]
    tested: tuple[int, ...]
    constants: Constants
    prefill: tuple[float, ...]
    decode: tuple[float, ...]
    throughput: tuple[float, ...]

    def worst(self, what: str) -> float:
        """The largest absolute error of ``prefill``, ``decode`` or ``throughput``."""
        return max(map(abs, getattr(self, what)))


def hold_out(rows: Sequence[LogRow] = A100_LOGS, count: int = 4) -> tuple[HoldOut, ...]:
    """Every choice of so many rows to fit on, tested on the others."""
    base = None if rows[0].hardware == "a100-80gb" else a100_constants()
    found = []
    for fitted in itertools.combinations(range(len(rows)), count):
        chosen = [rows[i] for i in fitted]
        constants = fit_a100(chosen) if base is None else fit_t4(chosen, base)
        tested = tuple(i for i in range(len(rows)) if i not in fitted)
        found.append(HoldOut(fitted, tested, constants, *_errors(rows, tested, constants)))
    return tuple(found)


def _errors(
    rows: Sequence[LogRow], tested: tuple[int, ...], constants: Constants
) -> tuple[tuple[float, ...], ...]:
    columns = []
    for i in tested:
        got, (prefill, decode) = estimate(rows[i].case, constants), rows[i].seconds
        columns.append(
            (
                got.prefill.seconds / prefill - 1,
                got.decode.seconds / decode - 1,
                got.tokens_per_second / rows[i].tokens_per_second - 1,
            )
        )
    return tuple(zip(*columns, strict=True))


def best_design(rows: Sequence[LogRow] = A100_LOGS, count: int = 4) -> tuple[int, ...]:
    """The rows that determine the constants best, chosen without looking at any time.

    D-optimal: the largest product, over both phases, of the determinants of A'A, where row i of A
    holds the parts of run i at peak as shares of their sum (bookkeeping at one byte).
    """
    scales = []
    for parts, _ in (_decode_parts(rows), _prefill_parts(rows)):
        shares = parts / parts.sum(axis=1, keepdims=True)
        scales.append(shares / shares.max(axis=0))

    def size(chosen: tuple[int, ...]) -> float:
        rows = [scale[list(chosen)] for scale in scales]
        return math.prod(float(np.linalg.det(part.T @ part)) for part in rows)

    return max(itertools.combinations(range(len(rows)), count), key=size)


@functools.cache
def a100_constants() -> Constants:
    """Fitted on the four rows of :func:`best_design`."""
    return fit_a100([A100_LOGS[i] for i in best_design()])


@functools.cache
def t4_constants() -> Constants:
    """Host and arithmetic fitted on the three runs of table 3, the rest from the A100."""
    return fit_t4(T4_LOGS[:3], a100_constants())


def constants_for(hardware: str) -> Constants:
    """Those fitted on that hardware; on other hardware those of the A100, assumed to carry over."""
    if hardware == "T4":
        return t4_constants()
    if hardware == "A100-80GB":
        return a100_constants()
    known = a100_constants()
    return replace(known, source=f"assumed to be those of an A100, {known.source}")
