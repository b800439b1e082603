"""Rotary position embedding, to take the position out of recorded queries and keys."""

import numpy as np
from numpy.typing import ArrayLike

from h2o_theory.annotations import FloatArray

__all__ = ["rotate"]


def rotate(
    vectors: ArrayLike, positions: ArrayLike, theta: float, width: int | None = None
) -> FloatArray:
    r"""Turn each pair of coordinates by an angle proportional to a position.

    .. math:: \begin{pmatrix} y_f \\ y_{f+w/2} \end{pmatrix} =
              \begin{pmatrix} \cos p\,\omega_f & -\sin p\,\omega_f \\
                              \sin p\,\omega_f & \cos p\,\omega_f \end{pmatrix}
              \begin{pmatrix} x_f \\ x_{f+w/2} \end{pmatrix}, \qquad
              \omega_f = \theta^{-2f/w}

    for the first w coordinates; the others stay. Minus the position takes the embedding out.

    Parameters
    ----------
    vectors : array [..., n, d]
    positions : array [n]
        May be negative or fractional.
    theta : float
        The base of the frequencies.
    width : int, optional
        w, even; d by default (below d: partial rotary embedding, as in GPT-NeoX).

    Returns
    -------
    array like ``vectors``, float64

    Examples
    --------
    >>> rotate([[1.0, 0.0]], [np.pi / 2], 10000.0).round(3)
    array([[0., 1.]])
    """
    vectors = np.array(vectors, dtype=np.float64)
    width = vectors.shape[-1] if width is None else width
    half = width // 2
    angles = np.asarray(positions)[:, None] * theta ** (-np.arange(half) / half)
    first, second = vectors[..., :half].copy(), vectors[..., half:width].copy()
    vectors[..., :half] = first * np.cos(angles) - second * np.sin(angles)
    vectors[..., half:width] = first * np.sin(angles) + second * np.cos(angles)
    return vectors
