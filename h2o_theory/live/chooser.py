"""What decides which keys a query sees: an eviction policy, or a schedule fixed beforehand."""

import dataclasses

import numpy as np

from h2o_theory.engine.run import features_of, make_run, row_kind
from h2o_theory.policies import TENSORS, Policy, Tensors

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

    def arrive(self, start, queries, keys, values, scaling):
        """Take note of the queries [G, B, d], keys [B, d] and values [B, dv] from ``start`` on."""

    def advance(self, rows, start, sink_share=None):
        """Decide for the rows ``start .. start + B`` of ``rows`` [G, B, T].

        Each row is given up to a factor; ``sink_share`` [G, B] is what a sink without a key has,
        in the same measure.
        """

    def visible(self, positions, start, stop):
        """Which of the keys at ``positions`` [m] each query of ``[start, stop)`` sees, [B, m]."""
        queries = np.arange(start, stop)[:, None]
        return (positions <= queries) & (queries <= self.evicted_at[positions])

    def kept(self, positions, stop):
        """Which of the keys are still held when the query at ``stop`` arrives, bool [m]."""
        return self.evicted_at[positions] >= stop


class EvictionChooser(ScheduleChooser):
    """Visibility as an online policy decides it, by the loop that also replays traces.

    A policy that looks at queries, keys or values gets those of the tokens that have arrived,
    evicted ones included: what it needs of them is kept for it, 8 T d bytes each.

    Parameters
    ----------
    policy : Policy or PlainPolicy
    context : Context
    """

    def __init__(self, policy, context):
        super().__init__(np.full(context.tokens, context.tokens, dtype=np.int64))
        self._policy, self._context, self._run = policy, context, None
        self._kinds = [kind for kind in TENSORS if kind in policy.needs.split()]
        self.needs_rows = not isinstance(policy, Policy) or bool(row_kind(policy)[0])
        if not self._kinds:
            self._begin()

    def _begin(self):
        self._run = make_run(self._policy, self._context)
        self.evicted_at = self._run.evicted_at

    def arrive(self, start, queries, keys, values, scaling):
        """Keep what the policy looks at, and compute its features of the new tokens."""
        if not self._kinds:
            return
        given = {"queries": queries, "keys": keys, "values": values}
        new = {kind: given[kind].double().cpu().numpy() for kind in self._kinds}
        stop = start + keys.shape[0]
        if self._run is None:
            room = {
                kind: np.zeros((*part.shape[:-2], self._context.tokens, part.shape[-1]))
                for kind, part in new.items()
            }
            tensors = Tensors(**room, scaling=scaling)
            self._context = dataclasses.replace(self._context, tensors=tensors)
        for kind, part in new.items():
            getattr(self._context.tensors, kind)[..., start:stop, :] = part
        # What is computed of tokens that are yet to come, whose tensors are zero, is never used: an
        # online policy's features of a token come from the tokens up to it.
        with np.errstate(all="ignore"):
            if self._run is None:
                self._begin()
            if isinstance(self._policy, Policy):
                self._run.take_features(features_of(self._policy, self._context), start, stop)

    def advance(self, rows, start, sink_share=None):
        """Let the policy see the rows one after the other."""
        self._run.advance(rows, start, sink_share)


def keep_all(tokens):
    """The chooser of the full cache."""
    return ScheduleChooser(np.full(tokens, tokens, dtype=np.int64))


def chooser_for(policy, context):
    """What decides for a policy; a budget of the whole sequence evicts nothing that is missed."""
    if context.budget >= context.tokens:
        return keep_all(context.tokens)
    return EvictionChooser(policy, context)
