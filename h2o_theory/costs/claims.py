"""The ratios that the paper states: which cells give them, and what they are made of."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from h2o_theory.costs.case import Case
from h2o_theory.costs.estimate import CostEstimate, estimate
from h2o_theory.costs.fit import constants_for
from h2o_theory.costs.memory import largest_batch
from h2o_theory.costs.policy import PolicyCost
from h2o_theory.costs.published import A100_LOGS, CELLS, LogRow, TableCell

__all__ = [
    "CLAIMS",
    "Claim",
    "Decomposition",
    "Ratio",
    "above_the_roofline",
    "budget_alone",
    "decompose",
    "decompositions",
    "ratios",
]

SCHEDULE, BATCH = "schedule and placement", "batch that fits the full cache"
OFFLOADING = "no more offloading, at the batch that then fits"
BYTES, ROOM = "fewer bytes of cache read", "batch that the budget makes room for"
BOOKKEEPING, REST = "H2O's bookkeeping", "not explained by the model"


@dataclass(frozen=True)
class Ratio:
    """Two measured numbers, one over the other.

    Attributes
    ----------
    name : str
    value, low, high : float
        The ratio, and its range if both numbers are off by half a unit of the last digit.
    """

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Claim:
    """A factor that the paper states.

    Attributes
    ----------
    over : str
        The system compared with.
    stated, digits : float, int
        The factor, and digits after its point.
    most : bool
        Stated as the largest of all.
    """

    name: str
    over: str
    stated: float
    digits: int
    most: bool = True

    def agrees(self, ratio: Ratio) -> bool:
        """Whether some number within the ratio's range rounds to what is stated."""
        half = 0.5 * 10.0**-self.digits
        return ratio.high >= self.stated - half and ratio.low < self.stated + half


CLAIMS: tuple[Claim, ...] = (
    Claim("29x over DeepSpeed", "deepspeed", 29, 0),
    Claim("29x over Accelerate", "accelerate", 29, 0),
    Claim("3x over FlexGen", "flexgen", 3, 0),
    Claim("latency 1.1x lower at least", "latency", 1.1, 1, most=False),
    Claim("latency 1.9x lower at most", "latency", 1.9, 1),
    Claim("2.3x by a larger batch", "batch", 2.3, 1),
)


def ratios(over: str) -> tuple[Ratio, ...]:
    """All ratios of H2O's cells or logs to those of a system with the same model and lengths.

    Parameters
    ----------
    over : str
        ``accelerate``, ``deepspeed`` or ``flexgen`` (tables 3 and 4), ``latency`` (the logs of
        equal batch) or ``batch`` (table 5, batch 64 over 24).
    """
    if over == "latency":
        pairs = [(A100_LOGS[i], A100_LOGS[i + 1]) for i in (0, 2, 4)]
        return tuple(
            Ratio(full.name.replace(", full", ""), *(sum(full.seconds) / sum(h2o.seconds),) * 3)
            for full, h2o in pairs
        )
    if over == "batch":
        return (_ratio(*_larger_batch()),)
    return tuple(_ratio(*pair) for pair in _pairs(over))


def _pairs(system: str) -> Iterable[tuple[TableCell, TableCell]]:
    for cell in CELLS:
        if cell.system == "h2o" and cell.table in (3, 4):
            yield _same(cell, system), cell


def _same(cell: TableCell, system: str) -> TableCell:
    key = (cell.table, cell.model, cell.generate)
    return next(
        c for c in CELLS if c.system == system and (c.table, c.model, c.generate) == key
    )  # fmt: skip


def _larger_batch() -> tuple[TableCell, TableCell]:
    table = [cell for cell in CELLS if cell.table == 5]
    return table[0], table[2]


def _ratio(base: TableCell, h2o: TableCell) -> Ratio:
    return Ratio(
        f"{h2o.printed} / {base.printed}, {base.name}",
        h2o.value / base.value,
        (h2o.value - h2o.rounding) / (base.value + base.rounding),
        (h2o.value + h2o.rounding) / (base.value - base.rounding),
    )


@dataclass(frozen=True)
class Decomposition:
    """A measured ratio as a product of factors, in the order in which they were changed.

    The order matters: another one would give other factors with the same product.

    Attributes
    ----------
    name : str
    measured : float
    factors : tuple of (str, float)
        By the model, one change after the other.
    """

    name: str
    measured: float
    factors: tuple[tuple[str, float], ...]

    @property
    def modelled(self) -> float:
        """The ratio by the model."""
        return math.prod(factor for _, factor in self.factors)

    @property
    def rest(self) -> float:
        """What the model does not explain, as a factor."""
        return self.measured / self.modelled

    @property
    def by_budget(self) -> float:
        """The factor of cache, batch and bookkeeping: what a smaller cache does to the end."""
        names = (BYTES, ROOM, BOOKKEEPING)
        return math.prod(factor for name, factor in self.factors if name in names)

    @property
    def budget_share(self) -> float:
        """Share of the logarithm of the modelled ratio that is the budget's."""
        return math.log(self.by_budget) / math.log(self.modelled)

    @property
    def all_factors(self) -> tuple[tuple[str, float], ...]:
        """The factors and what is left."""
        return (*self.factors, (REST, self.rest))


def _predicted(case: Case) -> CostEstimate:
    return estimate(case, constants_for(case.hardware.name))


def _case(cell: TableCell | LogRow) -> Case:
    case = cell.case
    assert case is not None
    return case


def decompose(name: str, measured: float, base: Case, flexgen: Case, h2o: Case) -> Decomposition:
    """The factors between a baseline and H2O, by way of FlexGen with the full cache.

    Parameters
    ----------
    name : str
    measured : float
        Tokens a second of H2O over those of the baseline.
    base, flexgen, h2o : Case
        ``base`` is ``flexgen`` where the baseline is FlexGen.
    """
    free = replace(h2o.policy, bookkeeping=0.0)
    cheaper = replace(flexgen, policy=free)
    roomier = replace(h2o, policy=free)
    path = [(BYTES, cheaper), (ROOM, roomier), (BOOKKEEPING, h2o)]
    if base != flexgen:
        moved = replace(flexgen, workload=base.workload)
        if base.placed.offloads and not flexgen.placed.offloads:
            path = [(OFFLOADING, flexgen), *path]
        else:
            path = [(SCHEDULE, moved), (BATCH, flexgen), *path]
    before, factors = _predicted(base).tokens_per_second, []
    for label, case in path:
        after = _predicted(case).tokens_per_second
        factors.append((label, after / before))
        before = after
    return Decomposition(name, measured, tuple(factors))


def decompositions() -> tuple[Decomposition, ...]:
    """Of every ratio whose cells say their lengths: tables 3 and 5, and the latencies."""
    found = []
    for system in ("deepspeed", "accelerate", "flexgen"):
        for base, h2o in _pairs(system):
            if base.prompt:
                flexgen = _same(h2o, "flexgen")
                cases = (_case(base), _case(flexgen), _case(h2o))
                found.append(decompose(base.name, h2o.value / base.value, *cases))
    full, large = map(_case, _larger_batch())
    found.append(decompose("table 5, batch 64 over 24", _ratio(*_larger_batch()).value,
                           full, full, large))  # fmt: skip
    for i in (0, 2, 4):
        full_row, h2o_row = A100_LOGS[i], A100_LOGS[i + 1]
        measured = sum(full_row.seconds) / sum(h2o_row.seconds)
        cases = (full_row.case, full_row.case, h2o_row.case)
        found.append(decompose(f"latency, {full_row.model}", measured, *cases))
    return tuple(found)


def budget_alone(base: Case, h2o: PolicyCost) -> tuple[float, float]:
    """What the budget alone would do in the baseline's own schedule, by the model.

    Returns
    -------
    tuple of float
        The factor at equal batch, and with the batch grown as much as the largest that fits grows.
    """
    small = replace(base, policy=h2o)
    before = _predicted(base).tokens_per_second
    growth = largest_batch(small) / max(1, largest_batch(base))
    larger = small.with_batch(max(1, round(growth * base.workload.batch)))
    return (
        _predicted(small).tokens_per_second / before,
        _predicted(larger).tokens_per_second / before,
    )


def above_the_roofline() -> tuple[tuple[TableCell, float], ...]:
    """Cells above what their batch can reach when each step reads all weights at peak bandwidth.

    Returns
    -------
    tuple of (TableCell, float)
        Cells with everything on the device, and the bound in tokens a second: batch x bandwidth /
        bytes of weights in float16.
    """
    from h2o_theory.costs.hardware import HARDWARE
    from h2o_theory.costs.shapes import SHAPES

    found = []
    for cell in CELLS:
        hardware = HARDWARE["a100-80gb" if cell.table == 5 else "t4"]
        bound = cell.effective_batch * hardware.bandwidth / SHAPES[cell.model].weight_bytes
        if not cell.offloaded and cell.value > bound:
            found.append((cell, bound))
    return tuple(found)
