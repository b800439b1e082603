r"""Output error and divergence of a changed attention, defined once for all that is measured.

.. math:: \frac{\| \sum_j A'_j v_j - \sum_j A_j v_j \|_2}{\| \sum_j A_j v_j \|_2}, \qquad
          \mathrm{KL}(A' \| A) = \sum_j A'_j \log (A'_j / A_j)

with A the full row, A' the changed one and v the values. A row whose full output is zero has no
error. If A' is A restricted to a set and renormalised, the divergence is minus the log of the mass
that A gives to the set.
"""

import numpy as np

from h2o_theory.annotations import FloatArray
from h2o_theory.kernels import kernel

__all__ = ["divergences", "lost_mass_divergences", "relative_errors", "sum_relative_errors"]


def relative_errors(outputs: FloatArray, full: FloatArray) -> FloatArray:
    """The output errors of all rows whose full output is not zero, float64 [rows].

    Examples
    --------
    >>> relative_errors(np.array([[3.0, 4.0], [1.0, 0.0]]), np.array([[0.0, 4.0], [0.0, 0.0]]))
    array([0.75])
    """
    distance = np.linalg.norm(outputs - full, axis=-1)
    size = np.linalg.norm(full, axis=-1)
    return distance[size > 0] / size[size > 0]


def divergences(changed: FloatArray, full: FloatArray) -> FloatArray:
    """KL(changed || full) of each row, in nats, over the last axis.

    Examples
    --------
    >>> float(divergences(np.array([0.0, 1.0]), np.array([0.5, 0.5])).round(6))
    0.693147
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = changed * np.log(changed / full)
    return np.where(changed > 0, terms, 0).sum(axis=-1)


def lost_mass_divergences(mass: FloatArray) -> FloatArray:
    """The divergences of rows that were restricted to a set of this ``mass`` and renormalised."""
    with np.errstate(divide="ignore"):
        return -np.log(mass)


@kernel(nogil=True, error_model="numpy", fastmath={"reassoc", "nsz", "contract"})
def sum_relative_errors(kept, outputs, mass, skip):
    """:func:`relative_errors` of ``kept`` / ``mass`` [G, B, dv] over rows ``skip ..``, compiled.

    Returns their sum and their number.
    """
    total, count = 0.0, 0
    for g in range(kept.shape[0]):
        for b in range(skip, kept.shape[1]):
            scale = 1.0 / mass[g, b] if mass[g, b] > 0.0 else 0.0
            distance, size = 0.0, 0.0
            for d in range(kept.shape[2]):
                full = outputs[g, b, d]
                distance += (kept[g, b, d] * scale - full) ** 2
                size += full * full
            if size > 0.0:
                total += np.sqrt(distance / size)
                count += 1
    return total, count
