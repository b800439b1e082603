"""Arrays of an ``.npz`` file read piece by piece: numpy itself reads each one whole."""

import zipfile
from math import prod

import numpy as np

__all__ = ["open_npz"]


def open_npz(path):
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
