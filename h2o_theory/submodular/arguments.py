"""Ground sets, elements, weights and shapes as the functions of this package take them."""

from collections.abc import Iterable
from operator import index
from typing import SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from h2o_theory.annotations import FloatArray
from h2o_theory.errors import BadArgument
from h2o_theory.optimum.shapes import Shape

__all__ = ["require_members", "require_shape", "require_size", "require_weights"]


def require_size(size: SupportsIndex) -> int:
    """The number of elements as an int of at least 1."""
    try:
        number = index(size)
    except TypeError:
        number = 0
    if number < 1:
        raise BadArgument("size must be a whole number above 0", got=repr(size))
    return number


def require_members(members: Iterable[int], size: int, name: str) -> list[int]:
    """Distinct elements in ``0 .. size-1`` as a list of int, or a named refusal."""
    try:
        members = [index(j) for j in members]
    except TypeError:
        raise BadArgument(f"{name} must be whole numbers", got=repr(members)) from None
    if len(set(members)) < len(members) or not all(0 <= j < size for j in members):
        raise BadArgument(f"{name} must be distinct elements from 0 to {size - 1}", got=members)
    return members


def require_weights(weights: ArrayLike, dimensions: int, name: str) -> FloatArray:
    """float64 weights, finite and not negative, or a named refusal."""
    try:
        weights = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        weights = np.empty(0)
    if weights.ndim != dimensions or weights.size == 0:
        shape = "[n]" if dimensions == 1 else "[R, n]"
        raise BadArgument(f"{name} must have the shape {shape}", got=f"shape {list(weights.shape)}")
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise BadArgument(
            f"{name} must be finite numbers of at least 0",
            got=f"{weights.min()} to {weights.max()}",
        )
    return weights


def require_shape(shape: Shape) -> Shape:
    """A :class:`Shape`, or a named refusal."""
    if not isinstance(shape, Shape):
        raise BadArgument("shape must be a Shape, such as square_root()", got=type(shape).__name__)
    return shape
