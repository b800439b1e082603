"""One segment file: safetensors on disk, a checksum, memory-mapped views of its tensors."""

import contextlib
import hashlib
import struct
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path

import numpy as np
import safetensors

from h2o_theory.annotations import PathLike
from h2o_theory.errors import CannotRead, CorruptTrace
from h2o_theory.trace.schema import parse_json

__all__ = [
    "DTYPE_NAMES",
    "STORAGE_DTYPES",
    "map_tensors",
    "reading",
    "segment_bytes",
    "sha256_of",
    "to_float",
]

STORAGE_DTYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "I32": np.dtype("<i4"),
}
"""The safetensors dtypes a trace may hold; bfloat16 is mapped as its 16 raw bits."""


DTYPE_NAMES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
}
"""What a trace's spec calls them."""


def segment_bytes(tensors: Mapping[str, np.ndarray], dtypes: Mapping[str, str]) -> bytes:
    """Named arrays as the bytes of a safetensors file.

    numpy has no bfloat16: such a tensor comes as uint16 bits with ``dtypes[name] = "bfloat16"``.
    """
    # The specs hold bare addresses, so the contiguous arrays must outlive the call.
    arrays = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    payload = {
        name: safetensors.TensorSpec(
            dtype=dtypes.get(name, array.dtype.name),
            shape=list(array.shape),
            data_ptr=array.ctypes.data,
            data_len=array.nbytes,
        )
        for name, array in arrays.items()
    }
    return safetensors.serialize(payload, None)


def sha256_of(path: PathLike) -> str:
    """Hexadecimal SHA-256 of a file, read in pieces of 1 MiB."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def map_tensors(path: Path) -> dict[str, tuple[np.ndarray, str]]:
    """Memory-mapped views ``{name: (array, safetensors dtype)}`` of a segment, nothing read yet.

    Raises
    ------
    CannotRead
        If the machine has no memory, or no right, to map the file.
    CorruptTrace
        If the header is not that of a safetensors file of known dtypes that fills the file.
    """
    try:
        with reading(path):
            return _mapped(path)
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise CorruptTrace(
            "a segment of the trace cannot be read",
            where=path,
            got=error or type(error).__name__,
            expected="a safetensors file as listed in manifest.jsonl",
            hint="Record the trace again or restore the file",
        ) from None


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Tell trouble of the machine, such as too little memory, from a fault of the file."""
    try:
        yield
    except OSError as error:
        raise CannotRead(
            "the file cannot be read", where=path, got=error.strerror or error
        ) from None


def _mapped(path: Path) -> dict[str, tuple[np.ndarray, str]]:
    size = path.stat().st_size
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > size - 8:
            raise ValueError(f"header of {length} bytes in a file of {size}")
        header = parse_json(file.read(length))
    header.pop("__metadata__", None)
    # One map for the whole file: a long trace has more tensors than a process may have maps.
    data, views = np.memmap(path, np.uint8, "r")[8 + length :], {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        dtype, shape = STORAGE_DTYPES.get(entry["dtype"]), tuple(entry["shape"])
        if dtype is None:
            raise ValueError(f"tensor {name} has dtype {entry['dtype']}")
        if not 0 <= begin <= end <= len(data) or end - begin != dtype.itemsize * prod(shape):
            raise ValueError(f"tensor {name} does not fit the file")
        views[name] = (data[begin:end].view(dtype).reshape(shape), entry["dtype"])
    return views


def to_float(array: np.ndarray, dtype: str) -> np.ndarray:
    """A stored tensor in a dtype numpy can compute with (bfloat16 becomes float32)."""
    if dtype != "BF16":
        return np.asarray(array)
    return (np.asarray(array).astype(np.uint32) << 16).view(np.float32)
