"""Hardware: memories, bandwidths, arithmetic and the link between device and host."""

from dataclasses import dataclass
from pathlib import Path

from h2o_theory.costs.read import find, from_table, read_toml, require_positive
from h2o_theory.costs.units import GB, GIB, TERA
from h2o_theory.errors import BadArgument

__all__ = ["HARDWARE", "Hardware", "find_hardware"]


@dataclass(frozen=True)
class Hardware:
    """One device, its host and the link between them; peaks, as data sheets give them.

    Attributes
    ----------
    name : str
    memory : float
        Bytes of the device.
    bandwidth : float
        Bytes a second between the device's memory and its processors.
    flops : float
        Floating-point operations a second, in the number format of the model.
    link : float
        Bytes a second from the host to the device; 0 if the device is the host.
    host_memory : float
        Bytes of the host.
    disk : float
        Bytes a second from the disk to the host; 0 if nothing may lie there.
    usable : float
        Share of the device's memory that a program gets (the rest: context and fragments).
    source : str
    """

    name: str
    memory: float
    bandwidth: float
    flops: float
    link: float = 0.0
    host_memory: float = 0.0
    disk: float = 0.0
    usable: float = 0.97
    source: str = ""

    def __post_init__(self) -> None:
        require_positive(self.name, memory=self.memory, bandwidth=self.bandwidth, flops=self.flops)
        require_positive(self.name, usable=self.usable)
        for name in ("link", "host_memory", "disk"):
            if getattr(self, name) < 0:
                raise BadArgument(
                    f"{name} must be at least 0", where=self.name, got=getattr(self, name)
                )
        if self.usable > 1:
            raise BadArgument("usable must be a share up to 1", where=self.name, got=self.usable)

    @property
    def available_memory(self) -> float:
        """Bytes of the device that a program gets."""
        return self.usable * self.memory


HARDWARE: dict[str, Hardware] = {
    "t4": Hardware(
        "T4", 15 * GIB, 320 * GB, 65 * TERA, 15.75 * GB, 208 * GB, 2 * GB,
        source="NVIDIA T4 data sheet: 16 GB, of which 15 GiB are visible with ECC on, 320 GB/s, "
        "65 Tflop/s float16, PCIe 3.0 x16; host of 208 GB and disk of 2 GB/s as in FlexGen's paper",
    ),
    "a100-80gb": Hardware(
        "A100-80GB", 80 * GIB, 2039 * GB, 312 * TERA, 31.5 * GB, 512 * GB,
        source="NVIDIA A100 data sheet: 80 GB SXM, 2039 GB/s, 312 Tflop/s float16, PCIe 4.0 x16; "
        "host memory assumed",
    ),
    "h100": Hardware(
        "H100", 80 * GIB, 3350 * GB, 989 * TERA, 63 * GB, 1024 * GB,
        source="NVIDIA H100 data sheet: 80 GB SXM, 3.35 TB/s, 989 Tflop/s float16 dense, PCIe 5.0 "
        "x16; host memory assumed",
    ),
    "h200": Hardware(
        "H200", 141 * GB, 4800 * GB, 989 * TERA, 63 * GB, 1024 * GB,
        source="NVIDIA H200 data sheet: 141 GB, 4.8 TB/s, 989 Tflop/s float16 dense, PCIe 5.0 "
        "x16; host memory assumed",
    ),
}  # fmt: skip
"""Hardware by name. ``cpu`` is measured when it is asked for."""

_OTHER_NAMES = {"a100": "a100-80gb", "a100-80g": "a100-80gb", "a100-80": "a100-80gb"}
_HINT = (
    "Or cpu, which is measured, or a TOML file with memory, bandwidth, flops, link and host_memory "
    "in bytes and seconds"
)


def find_hardware(name: str) -> Hardware:
    """Hardware by name, from a TOML file, or ``cpu``: this machine, measured in a few seconds.

    Raises
    ------
    UnknownName
        With near names.
    BadArgument
        For a file that lacks a number.
    """
    if str(name).strip().lower() == "cpu":
        from h2o_theory.costs.measure import measure_cpu

        return measure_cpu()
    known = HARDWARE | {other: HARDWARE[name] for other, name in _OTHER_NAMES.items()}
    return find("hardware", name, known, _read, hint=_HINT)


def _read(path: Path) -> Hardware:
    return from_table(Hardware, {"name": path.stem} | read_toml(path), path)
