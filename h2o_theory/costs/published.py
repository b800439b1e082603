"""What the H2O paper's tables and its released logs say about time and memory, as data.

The logs are those of the folder ``h2o_flexgen/benchmark/h2o`` of github.com/FMInference/H2O, whose
suite file names the commands; the cells are those of the paper's tables 3, 4 and 5.
"""

from dataclasses import dataclass, replace

from h2o_theory.costs.case import Case
from h2o_theory.costs.hardware import HARDWARE
from h2o_theory.costs.policy import PolicyCost
from h2o_theory.costs.shapes import SHAPES
from h2o_theory.costs.systems import SYSTEMS
from h2o_theory.costs.workload import Placement, Workload, parse_placement

__all__ = ["A100_LOGS", "CELLS", "T4_LOGS", "TableCell", "LogRow", "h2o_cost"]

_T4_CACHE = {32: 0.1, 512: 0.2, 1024: 0.3}
"""The suite's ratio by generated tokens, with prompts of 512."""


def h2o_cost(entries: float) -> PolicyCost:
    """H2O as the released code runs it: a sum of scores in 2 bytes beside every entry of a head."""
    return PolicyCost("h2o", (float(entries),), bookkeeping=1.0, slot_bytes=2.0)


@dataclass(frozen=True)
class LogRow:
    """One run of the released logs.

    Attributes
    ----------
    hardware, model : str
    batch, batches, prompt, generate : int
    ratio : float
        Share of the prompt held as heavy hitters, and again as recent tokens; 0 for the full cache.
    prefill, decode, peak_gib : tuple of float
        Seconds, seconds and GiB of the device; two where a run was logged twice.
    placement : str
        FlexGen's percentages.
    projected : bool
        The log says that fewer batches were run and the times scaled up.
    ratio_said : bool
        Whether a file name or the suite says the ratio; otherwise that of the same length is taken.
    score_copies : float
        Of the version of the code that wrote the log, see
        :class:`~h2o_theory.costs.systems.System`.
    """

    hardware: str
    model: str
    batch: int
    batches: int
    prompt: int
    generate: int
    ratio: float
    prefill: tuple[float, ...]
    decode: tuple[float, ...]
    peak_gib: tuple[float, ...]
    placement: str = "100 0 100 0 100 0"
    projected: bool = False
    ratio_said: bool = True
    score_copies: float = 2.0

    @property
    def name(self) -> str:
        """Model, policy, lengths and batch."""
        policy = f"H2O {self.ratio:g}" if self.ratio else "full"
        batch = f"{self.batch}x{self.batches}" if self.batches > 1 else f"{self.batch}"
        where = "" if self.placement.startswith("100") else f", {self.placement[:2].strip()} % W"
        return f"{self.model} {self.prompt}+{self.generate}, {policy}, batch {batch}{where}"

    @property
    def seconds(self) -> tuple[float, float]:
        """Prefill and decode, each the mean of its logs."""
        return _mean(self.prefill), _mean(self.decode)

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens over all of the time."""
        return self.batch * self.batches * self.generate / sum(self.seconds)

    @property
    def peak(self) -> float:
        """Peak GiB of the device, the mean of its logs."""
        return _mean(self.peak_gib)

    @property
    def case(self) -> Case:
        """The run as the cost model takes it."""
        entries = 2 * int(round(self.ratio * self.prompt, 6))
        return Case(
            SHAPES[self.model],
            HARDWARE[self.hardware],
            Workload(self.prompt, self.generate, self.batch, self.batches),
            h2o_cost(entries) if self.ratio else PolicyCost("full"),
            replace(SYSTEMS["flexgen"], score_copies=self.score_copies),
            parse_placement(self.placement),
        )


def _mean(values: tuple[float, ...]) -> float:
    return sum(values) / len(values)


def _a100(model: str, batch: int, prompt: int, generate: int, *rest: object) -> LogRow:
    ratio, prefill, decode, peak = rest
    return LogRow(
        "a100-80gb", model, batch, 1, prompt, generate, ratio, prefill, decode, peak  # type: ignore[arg-type]
    )  # fmt: skip


A100_LOGS: tuple[LogRow, ...] = (
    _a100("opt-30b", 1, 7000, 1024, 0.0, (3.869, 3.867), (53.227, 53.113), (77.579,)),
    _a100("opt-30b", 1, 7000, 1024, 0.11, (3.592,), (46.729, 46.952), (69.170, 69.358)),
    _a100("opt-13b", 4, 5000, 5000, 0.0, (5.105,), (209.101,), (70.919,)),
    _a100("opt-13b", 4, 5000, 5000, 0.2, (4.632,), (150.809,), (46.511,)),
    _a100("opt-6.7b", 24, 2048, 2048, 0.0, (4.541,), (94.936,), (74.764,)),
    _a100("opt-6.7b", 24, 2048, 2048, 0.2, (4.125,), (49.366,), (36.392,)),
    _a100("opt-6.7b", 64, 2048, 2048, 0.2, (11.048,), (101.857,), (75.673,)),
)
"""The seven rows on an A100, everything on the GPU."""


def _t4(batch: int, batches: int, generate: int, *rest: object, share: int = 0) -> LogRow:
    prefill, decode, peak = rest
    return LogRow(
        "t4", "opt-30b", batch, batches, 512, generate, _T4_CACHE[generate],
        prefill, decode, peak,  # type: ignore[arg-type]
        placement=f"{share} {100 - share} 0 100 0 100", projected=True, ratio_said=not share,
        score_copies=2.0 if share else 4.0,
    )  # fmt: skip


T4_LOGS: tuple[LogRow, ...] = (
    _t4(52, 14, 32, (1052.874,), (787.918,), (9.342,)),
    _t4(52, 8, 512, (609.548,), (10704.990,), (9.698,)),
    _t4(44, 6, 1024, (394.668, 395.424), (19165.562, 19085.480), (8.684, 8.686)),
    _t4(48, 16, 32, (975.970,), (738.045,), (10.676,), share=20),
    _t4(40, 10, 512, (511.514,), (10753.118,), (10.170,), share=20),
    _t4(40, 7, 1024, (363.278,), (19014.146,), (10.496,), share=20),
)
"""The six rows on a T4, cache and attention on the CPU; the first three are those of table 3."""


@dataclass(frozen=True)
class TableCell:
    """One cell of the paper's tables of throughput.

    Attributes
    ----------
    table : int
    system : str
        ``accelerate``, ``deepspeed``, ``flexgen`` or ``h2o``.
    model : str
    prompt, generate : int
        0 where the table does not say them (XSUM).
    printed : str
        Tokens a second, with the digits of the table.
    batch, batches : int
        The table's effective batch is their product.
    offloaded : bool
        The table's C: memory of the CPU is used.
    """

    table: int
    system: str
    model: str
    prompt: int
    generate: int
    printed: str
    batch: int
    batches: int = 1
    offloaded: bool = False

    @property
    def name(self) -> str:
        """System, model and lengths."""
        lengths = f"{self.prompt}+{self.generate}" if self.prompt else "XSUM"
        return f"{self.system} {self.model} {lengths}"

    @property
    def value(self) -> float:
        """Tokens a second."""
        return float(self.printed)

    @property
    def rounding(self) -> float:
        """Half a unit of the last printed digit."""
        return 0.5 * 10.0 ** -len(self.printed.partition(".")[2])

    @property
    def effective_batch(self) -> int:
        """Sequences."""
        return self.batch * self.batches

    @property
    def case(self) -> Case | None:
        """The cell as the cost model takes it; None where the table does not say the lengths."""
        if not self.prompt:
            return None
        name, placement = "resident", Placement()
        if self.system in ("flexgen", "h2o") and self.offloaded:
            name = "flexgen"
            share = 0 if self.system == "h2o" else 20
            placement = parse_placement(f"{share} {100 - share} 0 100 0 100")
        elif self.offloaded:
            name = self.system
            placement = SYSTEMS[name].placement
        entries = 2 * int(round(_T4_CACHE.get(self.generate, 0.2) * self.prompt, 6))
        return Case(
            SHAPES[self.model],
            HARDWARE["t4" if self.table == 3 else "a100-80gb"],
            Workload(self.prompt, self.generate, self.batch, self.batches),
            h2o_cost(entries) if self.system == "h2o" else PolicyCost("full"),
            SYSTEMS[name],
            placement,
        )


def _row(
    system: str, *cells: tuple[str, int, bool] | tuple[str, int, bool, int]
) -> list[TableCell]:
    lengths = [(model, new) for new in (32, 512, 1024) for model in ("opt-6.7b", "opt-30b")]
    return [
        TableCell(3, system, model, 512, new, cell[0], cell[1], (*cell, 1)[3], cell[2])
        for (model, new), cell in zip(lengths, cells, strict=True)
    ]


def _xsum(
    system: str, small: tuple[str, int, bool], large: tuple[str, int, bool]
) -> list[TableCell]:
    return [
        TableCell(4, system, model, 0, 0, printed, batch, 1, offloaded)
        for model, (printed, batch, offloaded) in (("opt-6.7b", small), ("opt-30b", large))
    ]


CELLS: tuple[TableCell, ...] = (
    *_row("accelerate", ("20.4", 2, False), ("0.6", 8, True), ("15.5", 1, False), ("0.6", 8, True),
          ("5.6", 16, True), ("0.6", 8, True)),
    *_row("deepspeed", ("10.2", 16, True), ("0.6", 4, True), ("9.6", 16, True), ("0.6", 4, True),
          ("10.1", 16, True), ("0.6", 4, True)),
    *_row("flexgen", ("20.2", 2, False), ("8.1", 48, True, 3), ("16.8", 1, False),
          ("8.5", 40, True, 2), ("16.9", 1, False), ("7.1", 48, True)),
    *_row("h2o", ("35.1", 4, False), ("12.7", 52, True, 14), ("51.7", 4, False),
          ("18.83", 52, True, 8), ("52.1", 4, False), ("13.82", 44, True, 6)),
    *_xsum("accelerate", ("11.98", 1, False), ("0.23", 2, True)),
    *_xsum("deepspeed", ("3.52", 6, True), ("0.31", 2, True)),
    *_xsum("flexgen", ("10.80", 1, False), ("3.29", 44, True)),
    *_xsum("h2o", ("30.40", 1, False), ("6.70", 180, True)),
    TableCell(5, "flexgen", "opt-6.7b", 2048, 2048, "494.1", 24),
    TableCell(5, "h2o", "opt-6.7b", 2048, 2048, "918.9", 24),
    TableCell(5, "h2o", "opt-6.7b", 2048, 2048, "1161.0", 64),
)  # fmt: skip
"""Tables 3 and 4 (a T4), and the throughputs of table 5 (an A100)."""
