"""Which of a file's arrays is the attention of which layer."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from h2o_theory.annotations import PathLike
from h2o_theory.errors import InvalidAttention
from h2o_theory.trace.rows import ROW_SUM_TOLERANCE

__all__ = ["Matrix", "Source", "arranged"]


GENERATED = (
    "generate() gives one row per step: run the finished text through the model once, with "
    "output_attentions=True"
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
    shape: tuple[int, ...]
    dtype: str
    load: Callable[[], np.ndarray]
    pieces: Callable[[], Iterator[np.ndarray]]


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

    layers: tuple[int, ...]
    sequences: int
    tokens: int
    q_heads: tuple[int, ...]
    dtype: str
    ignored: tuple[str, ...]
    arrays: Callable[[], Iterator[tuple[int, np.ndarray]]]


def arranged(path: PathLike, matrices: list[Matrix]) -> Source:
    """Tell a stack of layers from one array per layer, and check that everything fits.

    Parameters
    ----------
    path : path
        For messages.
    matrices : list of Matrix
        All arrays of the file or folder.

    Returns
    -------
    Source

    Raises
    ------
    InvalidAttention
        If shapes, names or dtypes do not fit together.
    """
    square = [m for m in matrices if len(m.shape) >= 3 and m.shape[-1] == m.shape[-2]]
    ignored = tuple(m.name for m in matrices if m not in square)
    if not square:
        shapes = ", ".join(f"{m.name} {m.shape}" for m in matrices[:5])
        steps = any(m.shape[-2:-1] == (1,) for m in matrices)
        raise _shape_error(path, shapes or "no array", GENERATED if steps else "")
    (first, *others) = square
    stacked = (
        len(first.shape) > 3
        and not others
        and (len(first.shape) == 5 or _number(first) is None or first.name == "arr_0")
    )
    numbers = range(first.shape[0]) if stacked else [_number(m) for m in square]
    shapes = [first.shape[1:]] * first.shape[0] if stacked else [m.shape for m in square]
    shapes = [(1, *shape) if len(shape) == 3 else shape for shape in shapes]
    _require_alike(path, square, numbers, shapes)
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


def _require_alike(path, square, numbers, shapes):
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


def _shape_error(path, got, hint=""):
    return InvalidAttention(
        "attention has the wrong shape",
        where=path,
        got=got,
        expected="[layers, heads, T, T], [layers, sequences, heads, T, T], or per layer "
        "[sequences, heads, T, T] or [heads, T, T]",
        hint=hint,
    )
