"""One pass over rows: heavy hitters, sparsity and support against plain definitions."""

from types import SimpleNamespace

import numpy as np
import pytest
import reference
from analysis_traces import made_up_trace

from h2o_theory.analysis import survey_rows
from h2o_theory.analysis.emergence import position_bias
from h2o_theory.analysis.heavy_hitters import HeavyHitterTrack, most_attended
from h2o_theory.analysis.measurements import Measurements
from h2o_theory.analysis.survey import accumulated
from h2o_theory.analysis.tally import MASSES, RowTally, distance_bins
from h2o_theory.attention import count_sparse
from h2o_theory.errors import BadArgument, OutOfRange


def top(score, positions, m):
    """The m positions with the highest score, the younger among equals, by sorting."""
    return set(sorted(positions, key=lambda j: (-score[j], -j))[:m])


def members_by_definition(row, share, n_sink):
    """The heavy hitters at every step, from a T x T matrix."""
    score, sets = np.zeros(len(row)), []
    for t in range(len(row)):
        score += row[t]
        here = range(n_sink, t + 1)
        m = max(1, int(np.floor(round(share * len(here), 9)))) if len(here) else 0
        sets.append(top(score, here, m))
    return sets


CASES = {
    "random": lambda rng: reference.softmax_rows(rng, 1, 60)[0],
    "ties": lambda rng: reference.dyadic_rows(rng, 1, 60)[0],
    "uniform": lambda rng: reference.uniform_rows(1, 40)[0],
    "two tokens": lambda rng: reference.uniform_rows(1, 2)[0],
    "one token": lambda rng: np.ones((1, 1)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("n_sink", [0, 3])
def test_heavy_hitters_by_definition(case, n_sink):
    row = CASES[case](np.random.default_rng(1))
    tokens, share = len(row), 0.15
    track = HeavyHitterTrack(tokens, share, n_sink)
    for start in range(0, tokens, 7):
        track.add(row[start : start + 7], start)
    history = track.history()
    sets = members_by_definition(row, share, n_sink)
    for step, members in zip(history.steps, history.members, strict=True):
        assert set(np.flatnonzero(members)) == sets[step]
    stays, entered = [], {}
    for j in range(tokens):
        inside = [j in members for members in sets] + [None]
        began = None
        for t, now in enumerate(inside):
            if now and began is None:
                began = t
                entered.setdefault(j, t - j)
            elif not now and began is not None:
                stays.append((t - began, now is None))
                began = None
    for censored, counts in ((False, history.ended), (True, history.censored)):
        lengths = [length for length, cut in stays if cut is censored]
        assert np.array_equal(counts, np.bincount(lengths, minlength=tokens + 1))
    assert {j: a for j, a in enumerate(history.age_at_entry) if a >= 0} == entered


def test_past_and_future_sets_by_definition():
    row = reference.softmax_rows(np.random.default_rng(2), 1, 50)[0]
    track = HeavyHitterTrack(50, 0.2, 2)
    track.add(row, 0)
    history = track.history()
    total = row.sum(axis=0)
    both = {name: 0 for name in history.overlap}
    held = {"local": 0.0, "global": 0.0}
    for step in history.steps[:-1]:
        here = range(2, step + 1)
        m = max(1, int(0.2 * len(here) + 1e-9)) if len(here) else 0
        past = row[: step + 1].sum(axis=0)
        sets = {
            "local": top(past, here, m),
            "future": top(total - past, here, m),
            "global": top(total, here, m),
        }
        both["local-future"] += len(sets["local"] & sets["future"])
        both["global-future"] += len(sets["global"] & sets["future"])
        both["local-final"] += len(sets["local"] & sets["global"])
        for name in held:
            held[name] += (total - past)[list(sets[name])].sum()
    for name, count in both.items():
        assert history.overlap[name][0].sum() == count
    for name, mass in held.items():
        assert history.captured[name][0].sum() == pytest.approx(mass)
        assert (history.captured[name][0].sum() <= history.captured[name][1].sum() + 1e-9).all()


def test_most_attended_takes_the_younger_of_equals():
    score = np.array([9.0, 1, 2, 2, 2, 0])
    assert np.flatnonzero(most_attended(score, 1, 5, 2)).tolist() == [3, 4]
    assert most_attended(score, 1, 5, 9).sum() == 4
    assert most_attended(score, 3, 3, 2).sum() == 0


@pytest.mark.parametrize("case", CASES)
def test_sparsity_and_support_by_definition(case):
    row = CASES[case](np.random.default_rng(3))
    rows, tokens = np.stack([row, row[:, :]]), len(row)
    tally = RowTally(2, tokens, 0.05, 3)
    for start in range(0, tokens, 16):
        tally.add(rows[:, start : start + 16], start)
    found = tally.tallies()
    assert found.below.sum() == count_sparse(rows, 0, 0.05).below
    bins, names = distance_bins(tokens)
    for g in range(2):
        for t in range(tokens):
            ordered = np.sort(row[t, : t + 1])[::-1]
            for level, mass in enumerate(MASSES):
                m = found.support[g, t, level]
                assert ordered[:m].sum() >= mass - 1e-9
                assert m == 1 or ordered[: m - 1].sum() < mass
    assert found.sink_mass == pytest.approx(rows[:, :, :3].sum(axis=-1))
    distance = np.arange(tokens)[:, None] - np.arange(tokens)
    for b in range(len(names)):
        here = (distance >= 0) & (bins[np.maximum(distance, 0)] == b)
        assert found.distance_entries[b] == 2 * here.sum()
        assert found.distance_mass[b] == pytest.approx(2 * row[here].sum())
        small = row < 0.05 * row.max(axis=1, keepdims=True)
        assert found.distance_below[b] == 2 * (small & here).sum()


def test_distance_bins_double():
    bins, names = distance_bins(9)
    assert names == ["0", "1", "2-3", "4-7", "8-15"]
    assert bins.tolist() == [0, 1, 2, 2, 3, 3, 3, 3, 4]
    assert distance_bins(1)[1] == ["0"] and distance_bins(2)[1] == ["0", "1"]


def test_survey_of_a_trace():
    trace = made_up_trace(300)
    one, two = (survey_rows(trace, workers=workers) for workers in (1, 2))
    rows = np.concatenate([trace.rows(1, head) for head in range(2)])
    assert one.received(1) == pytest.approx(rows.sum(axis=1).mean(axis=0))
    assert one.received().sum() == pytest.approx(300)
    assert accumulated(trace) == pytest.approx(one.received())
    assert [line["q_head"] for line in one.query_heads()] == [0, 1, 2, 3] * 2
    for a, b in zip(one.heads, two.heads, strict=True):
        assert (a.layer, a.kv_head) == (b.layer, b.kv_head)
        assert np.array_equal(a.received, b.received)
        assert np.array_equal(a.history.members, b.history.members)


def test_unusable_settings():
    trace = made_up_trace(20)
    for settings in (
        {"share": 0},
        {"share": 1.5},
        {"threshold": 0},
        {"n_sink": -1},
        {"workers": 0},
    ):
        with pytest.raises(BadArgument, match=next(iter(settings))):
            survey_rows(trace, **settings)
    with pytest.raises(OutOfRange, match="layer 7"):
        survey_rows(trace, layers=[7])


@pytest.mark.parametrize("count", [1, 7])
def test_a_share_of_positions_has_no_interval(count):
    """Heavy hitters everywhere: a tenth of them is in the first tenth, and that is exact."""
    tokens = 204
    head = SimpleNamespace(
        layer=0,
        kv_head=0,
        history=SimpleNamespace(members=np.full((1, tokens), count > 0)),
        rows=SimpleNamespace(sink_mass=np.full((2, tokens), 0.3)),
    )
    survey = SimpleNamespace(
        tokens=tokens,
        n_sink=4,
        heads=[head] * count,
        received=lambda: np.random.default_rng(0).random(tokens),
    )
    measurements = Measurements()
    position_bias(survey, measurements)
    found = measurements.get("position", "hitters in the first tenth", "all heads")
    assert found == pytest.approx((0.1, 0.1, 0.1))
