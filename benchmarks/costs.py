"""The cost model against live decoding on this machine: measured, calibrated on some, held out."""

import time
from collections.abc import Callable
from statistics import median

import numpy as np
import pandas as pd

from h2o_theory.annotations import Progress
from h2o_theory.costs.case import Case
from h2o_theory.costs.constants import Constants
from h2o_theory.costs.contract import policy_cost
from h2o_theory.costs.estimate import decode_at_peak, estimate
from h2o_theory.costs.fit import least_squares
from h2o_theory.costs.hardware import Hardware
from h2o_theory.costs.measure import measure_cpu
from h2o_theory.costs.shapes import shape_from_config
from h2o_theory.costs.systems import SYSTEMS
from h2o_theory.costs.workload import Workload
from h2o_theory.dependencies import require
from h2o_theory.live import generate
from h2o_theory.policies import make_policy
from h2o_theory.recorder import LoadedModel, load_model

__all__ = ["run"]

MODEL, STEPS = "smollm2-135m", 16
RUNS = (
    (256, "full", "100%", True),
    (1024, "full", "100%", True),
    (1024, "h2o", "50%", True),
    (512, "full", "100%", False),
    (512, "h2o", "20%", False),
    (1024, "h2o", "20%", False),
    (1024, "h2o", "5%", False),
    (1024, "recent", "20%", False),
    (1536, "h2o", "20%", False),
)
"""Prompt, policy, budget, and whether the constants are calibrated on it."""


def run(progress: Progress | None = None) -> pd.DataFrame:
    """CPU seconds of a decoding step, by the model and measured, on one thread in float32.

    Bandwidth and FLOP/s are measured by two products of numpy, before and after; the constants
    (time to read weights and cache over bytes / bandwidth, seconds of each layer, H2O's
    bookkeeping) are calibrated on three runs and tested on the others. CPU time, not wall time, so
    that other programs disturb little; the median of the steps.

    Returns
    -------
    pandas.DataFrame
        benchmark, size (tokens of the prompt), seconds (measured), baseline ("the cost model"),
        baseline_seconds (predicted), ratio (predicted / measured), note.
    """
    torch = require("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        before, loaded = measure_cpu(time.process_time), load_model(MODEL)
        measured = []
        for done, (prompt, policy, budget, _) in enumerate(RUNS, start=1):
            measured.append(_step_seconds(loaded, prompt, policy, budget))
            if progress:
                progress(done, len(RUNS), "cost model")
        after = measure_cpu(time.process_time)
    finally:
        torch.set_num_threads(threads)
    hardware = min(before, after, key=lambda found: found.bandwidth)
    cases = [_case(loaded, hardware, *one[:3]) for one in RUNS]
    constants = _calibrate(cases, measured)
    rows = []
    for (prompt, policy, budget, fitted), case, seconds in zip(RUNS, cases, measured, strict=True):
        predicted = estimate(case, constants).decode.seconds / STEPS
        rows.append(
            {
                "benchmark": f"decoding step, {policy} at {budget}",
                "size": prompt,
                "seconds": seconds,
                "baseline": "the cost model",
                "baseline_seconds": predicted,
                "ratio": predicted / seconds,
                "note": "calibrated on" if fitted else "held out",
            }
        )
    rows[0]["note"] += (
        f"; {hardware.bandwidth / 1e9:.1f} GB/s, {hardware.flops / 1e9:.0f} Gflop/s; weights "
        f"x{constants.weights:.2f}, {1e3 * constants.overhead:.2f} ms a layer, bookkeeping "
        f"{constants.bookkeeping:.0f} bytes"
    )
    return pd.DataFrame(rows)


def _step_seconds(loaded: LoadedModel, prompt: int, policy: str, budget: str) -> float:
    torch = require("torch")
    ids = torch.randint(3, 49000, (prompt,), generator=torch.Generator().manual_seed(prompt))
    moments: list[float] = []
    note: Callable[[int, int, str], None] = lambda *_: moments.append(time.process_time())  # noqa: E731
    generate(loaded, ids, STEPS + 1, policy, budget, progress=note)
    return median(np.diff(moments))


def _case(loaded: LoadedModel, hardware: Hardware, prompt: int, policy: str, budget: str) -> Case:
    shape = shape_from_config(loaded.model.config, name=MODEL, number_bytes=4)
    load = Workload(prompt, STEPS + 1)
    entries = max(1, int(float(budget.rstrip("%")) * load.tokens / 100))
    cost = policy_cost(make_policy(policy), (entries,))
    return Case(shape, hardware, load, cost, SYSTEMS["resident"])


def _calibrate(cases: list[Case], measured: list[float]) -> Constants:
    chosen = [i for i, one in enumerate(RUNS) if one[3]]
    parts = []
    for i in chosen:
        peak, layers = decode_at_peak(cases[i]), cases[i].model.layers
        parts.append([(peak["weights"] + peak["cache"]) / STEPS, layers,
                      peak["bookkeeping"] / STEPS])  # fmt: skip
    found = least_squares(np.asarray(parts), np.asarray([measured[i] for i in chosen]), [1, 0, 0])
    weights, overhead, bookkeeping = map(float, found)
    return Constants(
        weights=weights, cache=weights, bookkeeping=bookkeeping, overhead=overhead, flops=0.0,
        source="calibrated on live decoding",
    )  # fmt: skip
