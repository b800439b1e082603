"""Files with attention matrices, opened so that one layer at a time is in memory."""

import zipfile
import zlib
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from h2o_theory.annotations import PathLike
from h2o_theory.errors import CorruptTrace, InvalidAttention
from h2o_theory.trace.arrangement import Matrix, Source, arranged
from h2o_theory.trace.segments import DTYPE_NAMES, map_tensors

__all__ = ["open_npz", "open_source"]

PICKLED = (".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt")

CONVERT = (
    "Convert it where you trust it, in Python: import torch; from safetensors.torch import "
    "save_file; attentions = torch.load({name!r}); "
    "save_file({{f'attentions.{{i}}': a.contiguous() for i, a in enumerate(attentions)}}, "
    "'attentions.safetensors')"
)


def open_source(path: PathLike) -> Source:
    """Open a file or folder of attention matrices.

    Parameters
    ----------
    path : path
        ``.npy`` or, in ``.npz`` and ``.safetensors``, a single array: [L, H, T, T] or
        [L, B, H, T, T]. Or one array [B, H, T, T] or [H, T, T] per layer, as
        ``output_attentions`` gives them: in ``.npz`` or ``.safetensors`` with the layer's number
        in each name (``attentions.0``, ``layer_0``, ``0``), or in a folder of ``.npy`` files named
        likewise.

    Returns
    -------
    :class:`~h2o_theory.trace.arrangement.Source`

    Raises
    ------
    InvalidAttention
        If there is no such file, it is of another or an unsafe format, cut off, or what it holds
        cannot be told apart. Nothing is ever unpickled.
    """
    path = Path(path)
    try:
        return arranged(path, _matrices(path))
    except CorruptTrace as error:
        raise _refusal(path, error.got) from None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, InvalidAttention):
            raise
        raise _refusal(path, getattr(error, "strerror", None) or error) from None


def _refusal(path, got):
    return InvalidAttention(
        "the file cannot be read as attention",
        where=path,
        got=got,
        expected="a whole .npy, .npz or .safetensors file without pickled objects",
    )


def _matrices(path):
    if path.is_dir():
        files = sorted(path.glob("*.npy"))
        if not files:
            raise InvalidAttention(
                "the folder holds no attention",
                where=path,
                got="no .npy file",
                expected="one .npy file per layer, such as layer_0.npy",
            )
        return [_npy(file) for file in files]
    suffix = path.suffix.lower()
    if suffix in PICKLED:
        raise InvalidAttention(
            "a pickle can run any code when it is opened, so it is not opened",
            where=path,
            expected=".npy, .npz or .safetensors",
            hint=CONVERT.format(name=path.name),
        )
    if suffix == ".npy":
        return [_npy(path)]
    if suffix == ".npz":
        return [Matrix(*fields) for fields in open_npz(path)]
    if suffix == ".safetensors":
        views = map_tensors(path).items()
        return [_mapped(name, view, DTYPE_NAMES[dtype]) for name, (view, dtype) in views]
    raise InvalidAttention(
        "the format is not known",
        where=path,
        got=path.suffix or "no ending",
        expected=".npy, .npz, .safetensors or a folder of .npy files",
    )


def _npy(path):
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    return _mapped(path.stem, array, array.dtype.name)


def _mapped(name, array, dtype):
    return Matrix(name, array.shape, dtype, lambda: array, lambda: iter(array))


def open_npz(path: PathLike) -> list[tuple[Any, ...]]:
    """Describe the arrays of an ``.npz`` file, compressed or not.

    Returns
    -------
    list of (name, shape, dtype, load, pieces)
        ``load()`` reads the whole array; ``pieces()`` yields its entries along the first axis in
        order, one in memory at a time.

    Raises
    ------
    ValueError
        For an array of Python objects (a pickle), or in Fortran order.
    zipfile.BadZipFile, OSError, EOFError, zlib.error
        For a file that is no archive or cut off.
    """
    with zipfile.ZipFile(path) as archive:
        return [_describe(path, archive, member) for member in archive.namelist()]


def _describe(path, archive, member):
    with archive.open(member) as file:
        shape, dtype = _header(file, member)

    def pieces(count=None):
        """The array in ``count`` equal parts along its first axis, one by one."""
        count = shape[0] if count is None else count
        with zipfile.ZipFile(path) as again, again.open(member) as file:
            _header(file, member)
            size = prod(shape) * dtype.itemsize // max(count, 1)
            for _ in range(count):
                data = file.read(size)
                if len(data) != size:
                    raise EOFError(f"{member} is cut off")
                yield np.frombuffer(data, dtype)

    def load():
        (array,) = pieces(1)
        return array.reshape(shape)

    def rows():
        return (array.reshape(shape[1:]) for array in pieces())

    return member.removesuffix(".npy"), shape, dtype.name, load, rows


def _header(file, member):
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in read:
        raise ValueError(f"{member} is in npy format {version}")
    shape, fortran, dtype = read[version](file)
    if dtype.hasobject:
        raise ValueError(f"{member} holds pickled Python objects")
    if fortran and len(shape) > 1:
        raise ValueError(f"{member} is in Fortran order; save np.ascontiguousarray(array)")
    return shape, dtype
