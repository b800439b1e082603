"""Check of an answer that does not trust the maximiser: every number anew, from f alone."""

from dataclasses import dataclass

import numpy as np

from h2o_theory.submodular.result import Maximised
from h2o_theory.submodular.set_function import SetFunction

__all__ = ["AnswerCheck", "check_answer"]


@dataclass(frozen=True)
class AnswerCheck:
    """What the check of one :class:`Maximised` found.

    Attributes
    ----------
    value : float or None
        f of the members, evaluated once; None if they are no set of at most k elements.
    bound : float
        The least online bound over the prefixes of the members; infinite where f is not declared
        monotone and submodular.
    ratio : float
        ``value / bound``: the share of the optimum proved from f alone; 0 if nothing is.
    message : str
        Everything that is wrong with the answer; ``"consistent"`` if nothing is.
    """

    value: float | None
    bound: float
    ratio: float
    message: str

    @property
    def consistent(self) -> bool:
        """Whether nothing is wrong."""
        return self.message == "consistent"


def check_answer(
    function: SetFunction, answer: Maximised, *, tolerance: float = 1e-9
) -> AnswerCheck:
    """Evaluate an answer again and bound the optimum by the elements it chose.

    Uses ``function.value`` only: neither the selections nor the bound code of the maximisers.

    Parameters
    ----------
    function : SetFunction
    answer : Maximised
    tolerance : float
        Differences up to this, relative to the value, count as rounding.

    Returns
    -------
    AnswerCheck
        Faults are reported in it, never raised.

    Notes
    -----
    k n values.

    Examples
    --------
    >>> from h2o_theory.submodular import greedy, modular
    >>> f = modular([1.0, 5.0, 2.0])
    >>> check_answer(f, greedy(f, 2)).ratio
    1.0
    """
    members = list(answer.members)
    distinct = len(set(members)) == len(members) <= answer.size
    if not distinct or not all(0 <= j < function.size for j in members):
        return AnswerCheck(None, np.inf, 0.0, f"no set of at most {answer.size} elements")
    value = float(function.value(members))
    slack = tolerance * max(abs(value), 1.0)
    faults = []
    if abs(value - answer.value) > slack:
        faults.append(f"the answer states a value of {answer.value}, f gives {value}")
    if answer.upper < value - slack:
        faults.append(f"the stated upper bound {answer.upper} is below the value {value}")
    bound = np.inf
    if function.properties.monotone and function.properties.submodular:
        bound = min(_bound(function, members[:i], answer.size) for i in range(len(members) + 1))
        if bound < value - slack:
            faults.append(f"f is not as declared: the bound {bound} is below the value {value}")
    ratio = value / bound if np.isfinite(bound) and bound > 0 else 0.0
    return AnswerCheck(value, bound, ratio, "; ".join(faults) or "consistent")


def _bound(function: SetFunction, members: list[int], size: int) -> float:
    value = function.value(members)
    gains = sorted(
        function.value([*members, j]) - value for j in range(function.size) if j not in members
    )
    return float(value + sum(max(gain, 0.0) for gain in gains[max(len(gains) - size, 0) :]))
