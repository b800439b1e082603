"""Types that the signatures of several rooms share."""

import os
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["FloatArray", "Head", "IntArray", "PathLike", "Progress"]

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]

Head: TypeAlias = tuple[int, int]
"""A layer and one of its kv_heads."""

PathLike: TypeAlias = str | os.PathLike[str]

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called as ``progress(done, total, label)`` while something runs."""
