"""H2O as its code with true dropping divides the budget."""

from dataclasses import dataclass
from typing import ClassVar

from h2o_theory.policies.parts import Parts, heavy_part
from h2o_theory.policies.registry import register
from h2o_theory.policies.rules.h2o import H2O

__all__ = ["H2ORealDrop"]


@register
@dataclass(frozen=True)
class H2ORealDrop(H2O):
    r"""H2O whose parts leave the query's own entry out of account, as the released code does.

    The rule is that of ``h2o``. The code counts hb heavy and rb recent entries beside the query's
    own, so that a budget of k sees

    .. math:: k = hb + rb + 1, \qquad hb = \lfloor (1 - recent)(k - 1) \rfloor, \qquad
              n_{heavy} = hb, \quad n_{recent} = rb + 1

    At the default share and an odd budget that is ``h2o`` itself.

    Source: FMInference/H2O, ``utils_real_drop`` (defaults 4 heavy, 512 recent), and
    ``utils_hh`` before June 2024, whose masks were the same by the accident of an aliased array.
    Its repair made them another rule: the entry that leaves the window is hidden for one row and
    may come back, so that it is no cache but the mask ``h2o_hf``; without the return it is ``h2o``
    with a window of rb. Departures: streaming by default (the code prefills), float64 scores (the
    code's are half precision), one set per kv_head.
    """

    name: ClassVar[str] = "h2o_real_drop"
    source: ClassVar[str] = "FMInference/H2O utils_real_drop"

    def parts(self, budget):
        """The share ``1 - recent`` of k - 1 is heavy, rounded down; the query's own is recent."""
        if self.n_recent is not None or self.n_heavy is not None or self.n_sink:
            return super().parts(budget)
        n_heavy = heavy_part(self.recent, budget - 1) if budget > 1 else 0
        return Parts(0, n_heavy, budget - n_heavy)
