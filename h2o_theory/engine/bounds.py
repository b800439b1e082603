"""The exact optimum of a kv_head at the budgets of its tasks, with its schedules."""

import numpy as np

from h2o_theory.optimum import optimum_curve

__all__ = ["Optima"]


class Optima:
    """J(OPT) in fixed point and the optimal schedule, ``best[prefill, budget]``.

    O(K T^2) time for the largest budget K of each prefill; 8 T^2 bytes besides ``fixed`` [T, T].
    """

    def __init__(self, fixed, tasks):
        self.best, self._schedules = {}, {}
        for prefill in sorted({task.prefill for task in tasks}):
            budgets = sorted({task.budget for task in tasks if task.prefill == prefill})
            self._solve(fixed, prefill, budgets)

    def schedule(self, prefill, budget):
        """The optimal ``evicted_at`` [T] at one of the budgets solved for."""
        return self._schedules[prefill, budget]

    def _solve(self, fixed, prefill, budgets):
        tokens = len(fixed)
        if budgets[-1] == tokens:
            # A budget of T evicts nothing; the solver would need T augmentations to say so.
            self.best[prefill, tokens] = int(fixed[prefill:].sum())
            self._schedules[prefill, tokens] = np.full(tokens, tokens)
            budgets = budgets[:-1]
        if budgets:
            curve = optimum_curve(fixed, budgets[-1], budgets=budgets, prefill=prefill)
            for budget in budgets:
                self.best[prefill, budget] = int(curve.values[budget - 1])
                self._schedules[prefill, budget] = curve.schedules[budget].evicted_at
