"""A mask at work on one kv_head: the pattern, and the heavy hitters that join it."""

import numpy as np

from h2o_theory.errors import BadBudget
from h2o_theory.masks.base import View, keep_largest
from h2o_theory.policies.parts import part_of

__all__ = ["MaskRun"]


class MaskRun:
    """What the rows of one kv_head see by a mask at a budget, block after block from row 0.

    Parameters
    ----------
    mask : Mask
    budget : int
    tokens : int
    prefill : int
        Rows before it see everything.

    Raises
    ------
    BadBudget
        If the heavy hitters' share of the budget leaves no place for the row's own key.
    """

    def __init__(self, mask, budget, tokens, prefill=0):
        self._heavy, self._prefill = part_of(mask.heavy, budget), prefill
        self._budget = budget - self._heavy
        if self._budget < 1:
            raise BadBudget(
                "no key is left for the pattern", where=mask.name, got=f"budget {budget}"
            )
        self._pattern = mask.begin(self._budget, tokens, prefill)
        self._totals = np.zeros(tokens)

    def visible(self, block, **tensors):
        """The keys each row of a block sees, bool [B, T].

        Parameters
        ----------
        block : h2o_theory.engine.rows.Block
            The rows that follow those of the last call.
        **tensors
            ``queries``, ``keys`` and ``scaling`` of the :class:`View`, if the mask needs them.
        """
        view = View(*block, budget=self._budget, **tensors)
        seen = self._pattern.pattern(view)
        if self._heavy:
            before = self._totals + np.cumsum(block.mean, axis=0) - block.mean
            seen = seen | keep_largest(before, view.causal & ~seen, self._heavy)
        self._totals += block.mean.sum(axis=0)
        return np.where(view.row < self._prefill, view.causal, seen)
