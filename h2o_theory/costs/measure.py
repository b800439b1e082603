"""This machine as hardware: bandwidth and arithmetic, measured."""

import os
import time
from collections.abc import Callable

import numpy as np

from h2o_theory.costs.hardware import Hardware

__all__ = ["measure_cpu"]

_ROWS, _COLUMNS = 8192, 8192
_WIDTH = 1024
_REPEATS = 5


def measure_cpu(clock: Callable[[], float] = time.perf_counter) -> Hardware:
    """Bandwidth and FLOP/s of this machine in float32, by two products of numpy.

    A matrix of 256 MiB times a vector reads each number once: its bytes over the shortest of five
    times are the bandwidth. A product of square matrices of width 1024 gives 2 * 1024^3
    operations. Both use all cores that numpy uses.

    Parameters
    ----------
    clock : callable
        Seconds; ``time.process_time`` counts the CPU's own, whatever else runs beside.
    """
    matrix = np.ones((_ROWS, _COLUMNS), dtype=np.float32)
    vector = np.ones(_COLUMNS, dtype=np.float32)
    square = np.ones((_WIDTH, _WIDTH), dtype=np.float32)
    read = _shortest(lambda: matrix @ vector, clock)
    multiply = _shortest(lambda: square @ square, clock)
    memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return Hardware(
        "this CPU", memory, matrix.nbytes / read, 2.0 * _WIDTH**3 / multiply,
        host_memory=memory, usable=0.9, source="measured with numpy in float32",
    )  # fmt: skip


def _shortest(function: Callable[[], object], clock: Callable[[], float]) -> float:
    times = []
    for _ in range(_REPEATS):
        start = clock()
        function()
        times.append(clock() - start)
    return min(times)
