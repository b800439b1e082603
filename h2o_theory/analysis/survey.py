"""One pass over the rows of a trace: all that the analysis needs to know of them."""

from dataclasses import dataclass

import numpy as np

from h2o_theory.analysis.heavy_hitters import HeavyHitterHistory, HeavyHitterTrack
from h2o_theory.analysis.tally import RowTallies, RowTally
from h2o_theory.attention import SPARSITY_THRESHOLD
from h2o_theory.engine.arguments import chosen_heads, thread_count
from h2o_theory.engine.threads import in_threads
from h2o_theory.errors import BadArgument

__all__ = ["HeadSurvey", "Survey", "accumulated", "survey_rows"]


@dataclass(frozen=True)
class HeadSurvey:
    """What one pass over the rows of a kv_head leaves behind; G query heads, T tokens.

    Attributes
    ----------
    layer, kv_head : int
    received : array [G, T]
        Attention accumulated by each position over all rows, per query head.
    history : HeavyHitterHistory
    rows : RowTallies
    """

    layer: int
    kv_head: int
    received: np.ndarray
    history: HeavyHitterHistory
    rows: RowTallies


@dataclass(frozen=True)
class Survey:
    """All kv_heads of a trace, and the settings they were surveyed with.

    Attributes
    ----------
    trace : Trace
    share : float
        Heavy hitters as a share of the positions.
    n_sink : int
        First positions that are set apart as sinks.
    threshold : float
        Share of the row's maximum below which an entry is sparse.
    heads : tuple of HeadSurvey
        In order of layer and kv_head.
    """

    trace: object
    share: float
    n_sink: int
    threshold: float
    heads: tuple

    @property
    def tokens(self):
        """Length T of the sequence."""
        return self.trace.tokens

    @property
    def layers(self):
        """The layers surveyed, ascending."""
        return tuple(dict.fromkeys(head.layer for head in self.heads))

    def of_layer(self, layer):
        """The kv_heads of one layer."""
        return [head for head in self.heads if head.layer == layer]

    def query_heads(self):
        """Layer, kv_head and q_head of every query head, in the order of the kv_heads."""
        return [
            {"layer": head.layer, "kv_head": head.kv_head, "q_head": head.kv_head * group + g}
            for head in self.heads
            for group in [len(head.received)]
            for g in range(group)
        ]

    def received(self, layer=None):
        """Accumulated attention by position [T], mean over the query heads (of one layer)."""
        heads = self.heads if layer is None else self.of_layer(layer)
        return np.concatenate([head.received for head in heads]).mean(axis=0)


def survey_rows(
    trace,
    *,
    layers=None,
    share=0.1,
    n_sink=4,
    threshold=SPARSITY_THRESHOLD,
    workers=None,
    progress=None,
):
    """Stream once over the rows of every kv_head and keep sums, counts and heavy hitters.

    Parameters
    ----------
    trace : Trace
    layers : list of int, optional
        All by default.
    share : float
        Heavy hitters as a share of the positions, in (0, 1).
    n_sink : int
        First positions set apart as sinks; 0 for none.
    threshold : float
        Share of a row's maximum below which an entry is sparse, in (0, 1).
    workers : int, optional
        Threads; the number of cores by default. Results do not depend on it.
    progress : callable (done, total, label), optional

    Returns
    -------
    Survey

    Raises
    ------
    BadArgument, OutOfRange
        For unusable settings, or a layer that the trace does not hold.

    Notes
    -----
    O(L H T^2 log T) time. A worker holds one block of rows, 8 G x 256 x T bytes, a sorted copy,
    and 128 snapshots of T scores; nothing holds a T x T matrix.
    """
    _check(share, n_sink, threshold)
    threads, heads = thread_count(workers), chosen_heads(trace, layers)

    def survey(head):
        return _survey_head(trace, *head, share, n_sink, threshold)

    # The first head compiles the kernels; alone, so that threads do not wait for one another.
    found = [survey(heads[0])]
    found += in_threads(survey, heads[1:], threads, progress, "rows read")
    return Survey(trace, share, n_sink, threshold, tuple(found))


def accumulated(trace, layers=None, *, workers=None, progress=None):
    """Attention accumulated by each position, mean over query heads, and nothing else.

    Parameters
    ----------
    trace : Trace
    layers : list of int, optional
        All by default.
    workers : int, optional
    progress : callable (done, total, label), optional

    Returns
    -------
    array [T]
        As :meth:`Survey.received`, in about half the time of a survey.
    """
    heads = chosen_heads(trace, layers)

    def received(head):
        return sum(rows.sum(axis=1) for _, rows in trace.blocks(*head))

    found = in_threads(received, heads, thread_count(workers), progress, f"rows of {trace.name}")
    return np.concatenate(found).mean(axis=0)


def _survey_head(trace, layer, kv_head, share, n_sink, threshold):
    group, tokens = trace.layer(layer).group, trace.tokens
    received = np.zeros((group, tokens))
    track = HeavyHitterTrack(tokens, share, n_sink)
    tally = RowTally(group, tokens, threshold, n_sink)
    for start, rows in trace.blocks(layer, kv_head):
        received += rows.sum(axis=1)
        track.add(rows.mean(axis=0), start)
        tally.add(rows, start)
    return HeadSurvey(layer, kv_head, received, track.history(), tally.tallies())


def _check(share, n_sink, threshold):
    for name, value in (("share", share), ("threshold", threshold)):
        if not 0 < value < 1:
            raise BadArgument("not a share", where=name, got=value, expected="between 0 and 1")
    if n_sink < 0:
        raise BadArgument("a negative number of sinks", where="n_sink", got=n_sink)
