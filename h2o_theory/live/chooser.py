"""What decides which keys a query sees: an eviction policy, or a schedule fixed beforehand."""

import numpy as np

from h2o_theory.engine.run import make_run, row_kind
from h2o_theory.policies import Policy

__all__ = ["EvictionChooser", "ScheduleChooser", "chooser_for", "keep_all"]


class ScheduleChooser:
    """Visibility by a schedule: key j is visible to query t iff ``j <= t <= evicted_at[j]``.

    Parameters
    ----------
    evicted_at : int array [T]
        The step at which each token leaves, T for never.

    Attributes
    ----------
    needs_rows : bool
        Whether :meth:`advance` looks at attention.
    """

    needs_rows = False

    def __init__(self, evicted_at):
        self.evicted_at = evicted_at

    def advance(self, rows, start):
        """Decide for the rows ``start .. start + B`` of ``rows`` [G, B, T]."""

    def visible(self, positions, start, stop):
        """Which of the keys at ``positions`` [m] each query of ``[start, stop)`` sees, [B, m]."""
        queries = np.arange(start, stop)[:, None]
        return (positions <= queries) & (queries <= self.evicted_at[positions])

    def kept(self, positions, stop):
        """Which of the keys are still held when the query at ``stop`` arrives, bool [m]."""
        return self.evicted_at[positions] >= stop


class EvictionChooser(ScheduleChooser):
    """Visibility as an online policy decides it, by the loop that also replays traces.

    Parameters
    ----------
    policy : Policy or PlainPolicy
    context : Context
    """

    def __init__(self, policy, context):
        self._run = make_run(policy, context)
        super().__init__(self._run.evicted_at)
        self.needs_rows = not isinstance(policy, Policy) or bool(row_kind(policy)[0])

    def advance(self, rows, start):
        """Let the policy see the rows one after the other."""
        self._run.advance(rows, start)


def keep_all(tokens):
    """The chooser of the full cache."""
    return ScheduleChooser(np.full(tokens, tokens, dtype=np.int64))


def chooser_for(policy, context):
    """What decides for a policy; a budget of the whole sequence evicts nothing that is missed."""
    if context.budget >= context.tokens:
        return keep_all(context.tokens)
    return EvictionChooser(policy, context)
