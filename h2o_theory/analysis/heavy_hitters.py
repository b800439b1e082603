"""Heavy hitters of one kv_head as its rows arrive: who they are, when they came, how they last.

At step t the heavy hitters H_t are the positions with the most attention accumulated so far
(local statistics), m_t of them: a share of the positions that have come. The sinks, the first
n_sink positions, are set apart and take no part. Among equals the younger one is kept, as in
every policy of this package.
"""

from dataclasses import dataclass
from math import floor

import numpy as np
from numba import njit

__all__ = ["CHECKPOINTS", "HeavyHitterHistory", "HeavyHitterTrack", "most_attended"]

CHECKPOINTS = 128
"""Steps at which the whole set is kept, evenly spaced over the sequence."""


@dataclass(frozen=True)
class HeavyHitterHistory:
    """What a pass over the rows of one kv_head found; C checkpoints, T positions.

    Attributes
    ----------
    steps : int array [C]
        The checkpoints, ascending, the last row among them.
    members : bool array [C, T]
        The heavy hitters at each checkpoint, by local statistics.
    overlap : dict of str to float array [2, T]
        For ``local-future``, ``global-future`` and ``local-final``: summed over checkpoints, how
        often each position is in both sets and how often in the first; the sum of the former
        over the sum of the latter is the overlap. See :func:`compare_sets`.
    overlap_at : dict of str to float array [C]
        The same overlap at each checkpoint (the last one has no future and is left out: C - 1).
    captured : dict of str to float array [3, T]
        For ``local`` and ``global``: attention still to come that the set, the best set of the
        same number, and a random set of that number receive, summed over checkpoints.
    age_at_entry : int array [T]
        Steps from a position's arrival until it first is a heavy hitter; -1 if it never is.
    ended, censored : int array [T + 1]
        Number of stays by their length in steps: those that ended, those cut off by the end.
    """

    steps: np.ndarray
    members: np.ndarray
    overlap: dict
    overlap_at: dict
    captured: dict
    age_at_entry: np.ndarray
    ended: np.ndarray
    censored: np.ndarray


class HeavyHitterTrack:
    """Follows the heavy hitters of one kv_head through its rows, block by block.

    Parameters
    ----------
    tokens : int
    share : float
        Heavy hitters as a share of the positions that have come, sinks not counted.
    n_sink : int
    """

    def __init__(self, tokens, share, n_sink):
        self._first = min(n_sink, tokens)
        eligible = np.maximum(np.arange(1, tokens + 1) - self._first, 0)
        self._counts = np.array([_members(n, share) for n in eligible])
        spaced = np.linspace(0, tokens - 1, min(CHECKPOINTS, tokens) + 1).round().astype(int)
        self._steps = np.unique(spaced[1:]) if tokens > 1 else np.array([0])
        self._score = np.zeros(tokens)
        self._since = np.full(tokens, -1)
        self._entered = np.full(tokens, -1)
        self._ended = np.zeros(tokens + 1, dtype=np.int64)
        self._snapshots = []

    def add(self, rows, start):
        """Take rows [n, T] (mean over the group) from step ``start`` on."""
        stop = start + len(rows)
        cuts = [step + 1 for step in self._steps if start <= step < stop]
        begin = start
        for end in dict.fromkeys([*cuts, stop]):
            _follow(
                rows[begin - start : end - start], begin, self._first, self._counts,
                self._score, self._since, self._entered, self._ended,
            )  # fmt: skip
            if end in cuts:
                self._snapshots.append((self._score.copy(), self._since >= 0))
            begin = end

    def history(self):
        """The :class:`HeavyHitterHistory`, once all rows were added. O(C T)."""
        tokens = len(self._score)
        staying = self._since >= 0
        censored = np.bincount(tokens - self._since[staying], minlength=tokens + 1)
        names = ("local-future", "global-future", "local-final")
        overlap = {name: np.zeros((2, tokens)) for name in names}
        overlap_at = {name: [] for name in names}
        captured = {name: np.zeros((3, tokens)) for name in ("local", "global")}
        for step, (score, _) in zip(self._steps[:-1], self._snapshots[:-1], strict=True):
            m = self._counts[step]
            found = compare_sets(score, self._score, self._first, step + 1, m)
            for name in names:
                both, one = found[name]
                overlap[name] += np.stack([both, one])
                overlap_at[name].append(both.sum() / m if m else 0.0)
            for name in captured:
                captured[name] += found[name]
        return HeavyHitterHistory(
            steps=self._steps,
            members=np.array([members for _, members in self._snapshots]),
            overlap=overlap,
            overlap_at={name: np.array(values) for name, values in overlap_at.items()},
            captured=captured,
            age_at_entry=np.where(
                self._entered >= 0, self._entered - np.arange(tokens), -1
            ),
            ended=self._ended,
            censored=censored,
        )  # fmt: skip


def compare_sets(past, total, first, stop, m):
    """Sets of m positions of ``first .. stop`` by past, total and future attention, compared.

    Parameters
    ----------
    past, total : array [T]
        Attention accumulated up to a step, and over all rows.
    first, stop : int
        The positions that take part: those after the sinks that have come.
    m : int

    Returns
    -------
    dict
        ``local-future``, ``global-future``, ``local-final``: pair of bool arrays [T], in both
        sets, in the first. The local set is the top m by past attention, the future set by
        attention still to come (total - past), the global set by total attention; the final set
        is the global set under the name the question "who stays?" gives it. ``local``,
        ``global``: array [3, T], future attention received by the set, by the future set, and by
        a random set of m positions on average.
    """
    coming = np.maximum(total - past, 0.0)
    local, future, overall = (
        most_attended(score, first, stop, m) for score in (past, coming, total)
    )
    here = np.zeros(len(past), dtype=bool)
    here[first:stop] = True
    chance = coming * here * (m / max(stop - first, 1))
    return {
        "local-future": (local & future, local),
        "global-future": (overall & future, overall),
        "local-final": (local & overall, local),
        "local": np.stack([coming * local, coming * future, chance]),
        "global": np.stack([coming * overall, coming * future, chance]),
    }


def most_attended(score, first, stop, m):
    """Bool array [T]: the m highest scores of ``first .. stop``, the younger among equals."""
    chosen = np.zeros(len(score), dtype=bool)
    _choose(np.asarray(score, dtype=np.float64), first, stop, m, chosen)
    return chosen


def _members(eligible, share):
    return max(1, floor(round(share * eligible, 9))) if eligible else 0


@njit(cache=True, nogil=True)
def _choose(score, first, stop, m, chosen):
    """Mark the m highest of score[first:stop] in ``chosen``, the younger among equals."""
    n = stop - first
    if m <= 0 or n <= 0:
        return
    if m >= n:
        chosen[first:stop] = True
        return
    bar = np.partition(score[first:stop], n - m)[n - m]
    left = m
    for j in range(first, stop):
        if score[j] > bar:
            chosen[j] = True
            left -= 1
    for j in range(stop - 1, first - 1, -1):
        if left == 0:
            break
        if score[j] == bar:
            chosen[j] = True
            left -= 1


@njit(cache=True, nogil=True)
def _follow(rows, start, first, counts, score, since, entered, ended):
    """Advance scores and stays by rows [n, T]; ``since[j]`` is the step a stay began, or -1."""
    chosen = np.zeros(len(score), dtype=np.bool_)
    for i in range(len(rows)):
        t = start + i
        for j in range(t + 1):
            score[j] += rows[i, j]
        chosen[: t + 1] = False
        _choose(score, first, t + 1, counts[t], chosen)
        for j in range(first, t + 1):
            if chosen[j] and since[j] < 0:
                since[j] = t
                if entered[j] < 0:
                    entered[j] = t
            elif not chosen[j] and since[j] >= 0:
                ended[t - since[j]] += 1
                since[j] = -1
