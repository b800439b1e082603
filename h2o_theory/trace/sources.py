"""Files with attention matrices, opened so that one layer at a time is in memory."""

import re
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from h2o_theory.errors import CorruptTrace, InvalidAttention
from h2o_theory.trace.npz import open_npz
from h2o_theory.trace.row_checks import ROW_SUM_TOLERANCE
from h2o_theory.trace.segments import DTYPE_NAMES, map_tensors

__all__ = ["Matrix", "Source", "open_source"]

PICKLED = (".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt")

CONVERT = (
    "Convert it where you trust it, in Python: import torch; from safetensors.torch import "
    "save_file; attentions = torch.load({name!r}); "
    "save_file({{f'attentions.{{i}}': a.contiguous() for i, a in enumerate(attentions)}}, "
    "'attentions.safetensors')"
)


@dataclass(frozen=True)
class Matrix:
    """A named array of a file, not read yet.

    Attributes
    ----------
    name : str
    shape : tuple of int
    dtype : str
        As a trace's spec calls it; whatever the file says if a trace cannot hold it.
    load : callable
        Returns the array (bfloat16 as its 16 raw bits), mapped where the file allows it.
    pieces : callable
        Yields the array's entries along its first axis, in order.
    """

    name: str
    shape: tuple
    dtype: str
    load: object
    pieces: object


@dataclass(frozen=True)
class Source:
    """Attention of one or several sequences.

    Attributes
    ----------
    layers : tuple of int
    sequences, tokens : int
    q_heads : tuple of int
        Query heads of each layer.
    dtype : str
    ignored : tuple of str
        Arrays of the file that are not square matrices, and so are no attention.
    arrays : callable
        Yields ``(layer, array [B, H, T, T])`` in the order of ``layers``; bfloat16 as raw bits.
    """

    layers: tuple
    sequences: int
    tokens: int
    q_heads: tuple
    dtype: str
    ignored: tuple
    arrays: object


def open_source(path):
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
    Source

    Raises
    ------
    InvalidAttention
        If there is no such file, it is of another or an unsafe format, cut off, or what it holds
        cannot be told apart. Nothing is ever unpickled.
    """
    path = Path(path)
    try:
        return _arranged(path, _matrices(path))
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
    if path.suffix in PICKLED:
        raise InvalidAttention(
            "a pickle can run any code when it is opened, so it is not opened",
            where=path,
            expected=".npy, .npz or .safetensors",
            hint=CONVERT.format(name=path.name),
        )
    if path.suffix == ".npy":
        return [_npy(path)]
    if path.suffix == ".npz":
        return [Matrix(*fields) for fields in open_npz(path)]
    if path.suffix == ".safetensors":
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


def _arranged(path, matrices):
    """Tell a stack of layers from one array per layer, and check that everything fits."""
    square = [m for m in matrices if len(m.shape) >= 3 and m.shape[-1] == m.shape[-2]]
    ignored = tuple(m.name for m in matrices if m not in square)
    if not square:
        shapes = ", ".join(f"{m.name} {m.shape}" for m in matrices[:5])
        raise _shape_error(path, shapes or "no array")
    (first, *others) = square
    stacked = (
        len(first.shape) > 3
        and not others
        and (len(first.shape) == 5 or _number(first) is None or first.name == "arr_0")
    )
    numbers = range(first.shape[0]) if stacked else [_number(m) for m in square]
    shapes = [first.shape[1:]] * first.shape[0] if stacked else [m.shape for m in square]
    shapes = [(1, *shape) if len(shape) == 3 else shape for shape in shapes]
    _check_alike(path, square, numbers, shapes)
    order = sorted(range(len(shapes)), key=lambda i: numbers[i])

    def arrays():
        pieces = first.pieces() if stacked else (square[i].load() for i in order)
        for i, array in zip(order, pieces, strict=True):
            yield numbers[i], array.reshape(shapes[i])

    return Source(
        layers=tuple(numbers[i] for i in order),
        sequences=shapes[0][0],
        tokens=shapes[0][-1],
        q_heads=tuple(shapes[i][1] for i in order),
        dtype=first.dtype,
        ignored=ignored,
        arrays=arrays,
    )


def _number(matrix):
    """The layer's number in an array's name, if there is exactly one number."""
    found = re.findall(r"\d+", matrix.name)
    return int(found[0]) if len(found) == 1 else None


def _check_alike(path, square, numbers, shapes):
    names = ", ".join(m.name for m in square[:5])
    patterns = {re.sub(r"\d+", "#", m.name) for m in square}
    if len(square) > 1 and (len(patterns) > 1 or None in numbers):
        raise InvalidAttention(
            "the names do not say which array is which layer",
            where=path,
            got=names,
            expected="names alike but for one number, such as attentions.0, attentions.1",
        )
    if len(set(numbers)) != len(numbers):
        raise InvalidAttention("two arrays are the same layer", where=path, got=names)
    alike = {(len(shape), shape[0], shape[-1]) for shape in shapes}
    if len(alike) != 1 or len(shapes[0]) != 4 or any(0 in shape for shape in shapes):
        raise _shape_error(path, " and ".join(sorted({str(shape) for shape in shapes})))
    dtypes = {m.dtype for m in square}
    if len(dtypes) != 1 or not dtypes <= set(ROW_SUM_TOLERANCE):
        raise InvalidAttention(
            "attention has the wrong dtype",
            where=path,
            got=" and ".join(sorted(dtypes)),
            expected=f"one of {', '.join(ROW_SUM_TOLERANCE)}, the same in all layers",
        )


def _shape_error(path, got):
    return InvalidAttention(
        "attention has the wrong shape",
        where=path,
        got=got,
        expected="[layers, heads, T, T], [layers, sequences, heads, T, T], or per layer "
        "[sequences, heads, T, T] or [heads, T, T]",
    )
