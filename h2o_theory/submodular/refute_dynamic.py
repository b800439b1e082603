"""Submodularity of ``F(Z, t, .)``: strong, for every Z, and dynamic, for sets that contain Z."""

from collections.abc import Sequence

from h2o_theory.errors import BadArgument
from h2o_theory.submodular.arguments import require_size
from h2o_theory.submodular.dynamic import DynamicFunction
from h2o_theory.submodular.refute import Counterexample, Refutation, refute
from h2o_theory.submodular.set_function import SetFunction
from h2o_theory.submodular.user_function import set_function

__all__ = ["refute_dynamic"]

# Tokens whose subsets are all tried as Z, X and Y.
_MOST_TOKENS = 10


def refute_dynamic(
    function: DynamicFunction, step: int, form: str = "strong", *, tolerance: float = 1e-9
) -> tuple[frozenset[int] | None, Refutation]:
    """Search all Z, X, Y at one step for a violation of Definition D.3 or D.4 of the H2O paper.

    Parameters
    ----------
    function : DynamicFunction
    step : int
        t, up to 9: all subsets of the tokens up to t are tried.
    form : str
        ``"strong"`` (D.3): F(Z, t, .) is submodular for every Z. ``"dynamic"`` (D.4): diminishing
        returns for Z in X in Y. With ``"monotone"`` (D.24): F(Z, t, .) is monotone for every Z.
    tolerance : float
        As for :func:`refute`.

    Returns
    -------
    tuple of (frozenset or None, Refutation)
        Z and the first violation found, or None and a Refutation without counterexample. In the
        dynamic form X and Y are given with the elements of Z.

    Raises
    ------
    BadArgument
        ``form`` is none of the three, or ``step`` is too large.

    Notes
    -----
    4^t values for the strong form, 3^t for the dynamic one.
    """
    if form not in ("strong", "dynamic", "monotone"):
        raise BadArgument("form must be strong, dynamic or monotone", got=form)
    tokens = require_size(step + 1)
    if tokens > min(_MOST_TOKENS, function.tokens):
        raise BadArgument(
            f"step must be at most {min(_MOST_TOKENS, function.tokens) - 1} to try all subsets",
            got=step,
        )
    evaluations = 0
    property = "monotone" if form == "monotone" else "submodular"
    definition = "growth" if form == "monotone" else "diminishing returns"
    for mask in range(1 << step):
        held = [j for j in range(step) if mask >> j & 1]
        base = held if form == "dynamic" else []
        free = [j for j in range(tokens) if j not in base]
        found = refute(
            _restricted(function.at(held, step), base, free),
            property,
            definition,
            tolerance=tolerance,
        )
        evaluations += found.evaluations
        if found.counterexample:
            case = _relabelled(found.counterexample, base, free)
            return frozenset(held), Refutation(property, definition, case, True, evaluations)
    return None, Refutation(property, definition, None, True, evaluations)


def _restricted(function: SetFunction, base: Sequence[int], free: Sequence[int]) -> SetFunction:
    """f(base + the free elements of a set) as a function of indices into ``free``."""
    return set_function(
        lambda members: function.value([*base, *(free[i] for i in sorted(members))]), len(free)
    )


def _relabelled(case: Counterexample, base: Sequence[int], free: Sequence[int]) -> Counterexample:
    """A counterexample of the restricted function in terms of tokens."""
    first, second = (
        tuple(sorted([*base, *(free[i] for i in chosen)])) for chosen in (case.first, case.second)
    )
    return Counterexample(
        case.definition, first, second, free[case.element], case.values, case.excess
    )
