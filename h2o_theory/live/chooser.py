"""What decides which keys a query sees: an eviction policy, or a schedule fixed beforehand."""

import dataclasses

import numpy as np

from h2o_theory.attention import rotate
from h2o_theory.engine.run import features_of, make_run, no_sinks, row_kind
from h2o_theory.errors import RecordingRefused
from h2o_theory.policies import TENSORS, CompiledPolicy, Tensors

__all__ = [
    "EvictionChooser",
    "ModelWideChooser",
    "ModelWideSet",
    "ScheduleChooser",
    "chooser_for",
    "keep_all",
]


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
    raw : bool
        Whether its rows are those over every past key, the evicted ones included, which are then
        kept for that purpose alone.
    """

    needs_rows = raw = False

    def __init__(self, evicted_at):
        self.evicted_at = evicted_at

    def arrive(self, start, queries, keys, values, scaling):
        """Take note of the queries [G, B, d], keys [B, d] and values [B, dv] from ``start`` on."""

    def advance(self, rows, start, sink_share=None):
        """Decide for the rows ``start .. start + B`` of ``rows`` [G, B, T].

        Each row is a softmax over what is held or arrives with the block (``raw``: over all past
        keys); ``sink_share`` [G, B] is what a sink without a key has of it.
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
    evicted ones included: what it needs of them is kept for it, 8 T d bytes each. Its features
    are computed anew, of all T tokens, whenever some arrive: O(T d) for each chunk of queries.

    Parameters
    ----------
    policy : Policy or PlainPolicy
    context : Context
    rotary : callable (head_dim) -> (theta, width) or None
        The model's rotary embedding, asked for by policies that look at queries before it.
    """

    def __init__(self, policy, context, rotary):
        super().__init__(np.full(context.tokens, context.tokens, dtype=np.int64))
        self._policy, self._context, self._run = policy, context, None
        self._rotary = rotary
        self._kinds = [kind for kind in TENSORS if kind in policy.needs.split()]
        self.needs_rows, self.raw = _looks_at(policy)
        if not self._kinds:
            self._begin()

    def _begin(self):
        self._run = make_run(self._policy, self._context)
        self.evicted_at = self._run.evicted_at

    def arrive(self, start, queries, keys, values, scaling):
        """Keep what the policy looks at, and compute its features of the new tokens."""
        if not self._kinds:
            return
        given = {"queries": queries, "unrotated": queries, "keys": keys, "values": values}
        new = {kind: given[kind].double().cpu().numpy() for kind in self._kinds}
        stop, rotary = start + keys.shape[0], None
        if "unrotated" in new:
            rotary = self._rotary(keys.shape[-1])
            if rotary:
                new["unrotated"] = rotate(new["unrotated"], -np.arange(start, stop), *rotary)
        if self._run is None:
            room = {
                kind: np.zeros((*part.shape[:-2], self._context.tokens, part.shape[-1]))
                for kind, part in new.items()
            }
            tensors = Tensors(**room, scaling=scaling, rotary=rotary)
            self._context = dataclasses.replace(self._context, tensors=tensors)
        for kind, part in new.items():
            getattr(self._context.tensors, kind)[..., start:stop, :] = part
        # What is computed of tokens that are yet to come, whose tensors are zero, is never used: an
        # online policy's features of a token come from the tokens up to it.
        with np.errstate(all="ignore"):
            if self._run is None:
                self._begin()
            if isinstance(self._policy, CompiledPolicy):
                self._run.take_features(features_of(self._policy, self._context), start, stop)

    def advance(self, rows, start, sink_share=None):
        """Let the policy see the rows one after the other."""
        self._run.advance(rows, start, sink_share)


class ModelWideSet:
    """One retained set of all layers, decided when the last layer has seen a token.

    Parameters
    ----------
    policy : Policy
        Of scope ``model``.
    context : Context
    layers : int
    """

    def __init__(self, policy, context, layers):
        self._run, self._layers = make_run(policy, context), layers
        self._rows, self._shares, self._token = [], [], 0
        self.evicted_at, self.looks_at = self._run.evicted_at, _looks_at(policy)

    def add(self, rows, start, sink_share):
        """Rows [G, 1, T] of the next layer."""
        if rows.shape[1] > 1 or start != self._token:
            raise RecordingRefused(
                "a set of all layers is decided token by token: the first layer has to know what "
                "the last one saw",
                where="closed loop",
                got="several tokens in one call",
                expected="one",
                hint="Feed the model one token at a time; evaluate and generate do so",
            )
        # The next layer writes its rows to the same place.
        self._rows.append(rows.copy())
        self._shares.append(no_sinks(rows) if sink_share is None else sink_share)
        if len(self._rows) == self._layers:
            self._run.advance(np.concatenate(self._rows), start, np.concatenate(self._shares))
            self._rows, self._shares, self._token = [], [], start + 1


class ModelWideChooser(ScheduleChooser):
    """What one layer sees of a :class:`ModelWideSet`."""

    def __init__(self, shared):
        super().__init__(shared.evicted_at)
        self._shared = shared
        self.needs_rows, self.raw = shared.looks_at

    def advance(self, rows, start, sink_share=None):
        """Hand the layer's rows over."""
        self._shared.add(rows, start, sink_share)


def _looks_at(policy):
    """(whether a policy looks at rows, whether at raw ones)."""
    if isinstance(policy, CompiledPolicy):
        needs_rows, raw, _ = row_kind(policy)
        return needs_rows, needs_rows and raw
    return True, policy.rows == "raw"


def keep_all(tokens):
    """The chooser of the full cache."""
    return ScheduleChooser(np.full(tokens, tokens, dtype=np.int64))


def chooser_for(policy, context, rotary):
    """What decides for a policy; a budget of the whole sequence evicts nothing that is missed."""
    if context.budget >= context.tokens:
        return keep_all(context.tokens)
    known = policy.schedule(context, None)
    if known is not None:
        return ScheduleChooser(known)
    return EvictionChooser(policy, context, rotary)
