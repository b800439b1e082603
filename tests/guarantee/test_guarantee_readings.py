"""Readings of F(Z, t, .): values by their definitions, best values against all pairs of sets."""

import numpy as np
import pytest
from guarantee_instances import SHAPES, attention, schedule
from hypothesis import given, settings
from hypothesis import strategies as st

from h2o_theory import submodular as sm
from h2o_theory.errors import BadArgument
from h2o_theory.optimum import square_root


def by_definition(name, rows, shape, evicted_at, cache, step, members):
    """The table of readings.py, one element at a time."""
    group, mean = len(rows), rows.mean(axis=0)
    h = lambda x: float(shape.value(np.array([x]))[0])  # noqa: E731

    def cached(seen, s, j):
        if j not in seen:
            return 0.0
        masses = [sum(head[s, i] for i in seen) for head in rows]
        return sum(head[s, j] / m for head, m in zip(rows, masses, strict=True) if m) / group

    if name == "row":
        return h(sum(mean[step, j] for j in members))
    if name == "accumulated":
        return h(sum(mean[s, j] for j in members for s in range(step + 1)))
    if name == "row_sums":
        return sum(h(sum(mean[s, j] for j in members)) for s in range(step + 1))
    total = sum(cached({*cache, step}, step, j) for j in members)
    if name == "accumulated_cached":
        for s in range(step):
            seen = {j for j in range(s + 1) if evicted_at[j] >= s}
            total += sum(cached(seen, s, j) for j in members)
    return h(total)


CASES = [(name, shape) for name in sm.READINGS for shape in SHAPES]


@pytest.mark.parametrize(("name", "shape"), CASES, ids=lambda case: getattr(case, "name", case))
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 3), st.booleans())
def test_values_and_best_values_against_their_definitions(name, shape, seed, tokens, group, tied):
    rng = np.random.default_rng(seed)
    rows = attention(rng, tokens, group, tied)
    evicted_at = schedule(rng, tokens, int(rng.integers(1, tokens + 1)))
    reading = sm.make_reading(name, rows, shape=shape, evicted_at=evicted_at)
    step = int(rng.integers(tokens))
    cache = np.flatnonzero(rng.random(step) < 0.6)
    members = np.flatnonzero(rng.random(step + 1) < 0.6)
    expected = by_definition(name, rows, shape, evicted_at, cache, step, members)
    assert reading.value(cache, step, members) == pytest.approx(expected, abs=1e-9)
    assert reading.at(cache, step).value(members) == pytest.approx(expected, abs=1e-9)

    size = int(rng.integers(1, tokens + 1))
    found = reading.best(step, size)
    truth = sm.DynamicFunction.best(reading, step, size).upper
    assert found.lower - 1e-9 <= truth <= found.upper + 1e-9
    reached = reading.value(found.cache, step, found.members)
    assert reached == pytest.approx(found.lower, abs=1e-9)
    assert len(found.cache) <= size and len(found.members) <= size
    assert len(set(found.members) - set(found.cache)) <= 1
    if name in ("row", "accumulated"):
        assert found.exact


def test_the_bounds_on_the_best_value_of_cached_readings_are_close():
    rng = np.random.default_rng(7)
    open_cases, gaps = 0, []
    for _ in range(60):
        rows = attention(rng, 24, 3)
        reading = sm.make_reading("accumulated_cached", rows, evicted_at=schedule(rng, 24, 9))
        found = reading.best(20, 8)
        open_cases += not found.exact
        gaps.append(found.upper / found.lower - 1)
    assert max(gaps) < 1e-3, (open_cases, max(gaps))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("name", ["row_cached", "accumulated_cached"])
def test_a_cached_reading_is_never_worth_more_than_its_shares(name, scale):
    """Tangents are steep where a row gives little to what is held; shares add up to 1 at most."""
    rng = np.random.default_rng(11)
    for _ in range(40):
        rows = np.tril(rng.random((2, 12, 12)) ** 8)
        rows[:, np.arange(12), np.arange(12)] *= scale
        rows[:, rng.random(12) < 0.2] = 0.0
        evicted_at = schedule(rng, 12, 5)
        reading = sm.make_reading(name, rows, evicted_at=evicted_at)
        for step in range(3, 12):
            found = reading.best(step, 4)
            earlier = reading.at((), step).value(range(step)) if name != "row_cached" else 0.0
            assert found.lower <= found.upper <= earlier + 1.0 + 1e-9
            if name == "row_cached" and (rows[:, step, step] > 0).all():
                assert found.lower == found.upper == 1.0


def test_the_best_of_a_cached_row_does_not_change_from_step_to_step():
    rng = np.random.default_rng(5)
    rows = attention(rng, 30, 3)
    rows[:, np.arange(1, 30), np.arange(1, 30)] *= 1e-3
    found = sm.measure_conditions(sm.make_reading("row_cached", rows), schedule(rng, 30, 8), 8)
    assert (found.best_upper == 1).all() and (found.best_lower == 1).all()
    assert (found.gamma == 0).all() and (found.gamma_used == 0).all()


def test_gamma_is_that_of_the_upper_bounds():
    rng = np.random.default_rng(6)
    rows, path = attention(rng, 16, 2), schedule(rng, 16, 5)
    for name in sm.READINGS:
        reading = sm.make_reading(name, rows, shape=square_root(), evicted_at=path)
        found = sm.measure_conditions(reading, path, 5)
        upper = found.best_upper
        defined, used = 1 - upper[1:] / upper[:-1], 1 - upper[:-1] / upper[1:]
        assert found.gamma[1:] == pytest.approx(np.maximum(defined, 0), abs=1e-12)
        assert found.gamma_used[1:] == pytest.approx(np.maximum(used, 0), abs=1e-12)


@pytest.mark.parametrize("name", sm.READINGS)
def test_readings_are_strongly_and_dynamically_submodular(name):
    rng = np.random.default_rng(3)
    rows = attention(rng, 5, 2)
    reading = sm.make_reading(name, rows, shape=square_root(), evicted_at=schedule(rng, 5, 3))
    for form in ("strong", "dynamic", "monotone"):
        held, found = sm.refute_dynamic(reading, 4, form)
        assert held is None and found.counterexample is None, str(found)


def test_the_dynamic_refuter_finds_what_is_planted():
    """Returns grow only for sets that hold token 2, and only when the cache holds token 1."""

    def planted(cache, step, members):
        return len(members) ** (2.0 if 1 in cache and 2 in members else 1.0)

    function = sm.dynamic_function(planted, 5)
    for form in ("strong", "dynamic"):
        held, found = sm.refute_dynamic(function, 4, form)
        case = found.counterexample
        assert 1 in held and case is not None
        first, second, j = set(case.first), set(case.second), case.element
        assert first <= second and j not in second and (form == "strong" or held <= first)
        late = planted(held, 4, second | {j}) - planted(held, 4, second)
        early = planted(held, 4, first | {j}) - planted(held, 4, first)
        assert late - early == pytest.approx(case.excess) and case.excess > 0
    falling = sm.dynamic_function(lambda cache, step, members: -float(len(members)), 4)
    assert sm.refute_dynamic(falling, 3, "monotone")[1].counterexample.excess == 1
    assert sm.refute_dynamic(function, 0)[1].counterexample is None


def test_dynamic_need_not_be_strong():
    """A violation among sets without Z breaks D.3 but not D.4."""

    def bent(cache, step, members):
        return 1.0 * (members == {0, 1}) if 2 in cache else float(len(members))

    function = sm.dynamic_function(bent, 4)
    assert sm.refute_dynamic(function, 3, "strong")[1].counterexample is not None
    assert sm.refute_dynamic(function, 3, "dynamic")[1].counterexample is None


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.sampled_from(SHAPES))
def test_the_excess_of_the_approximation_covers_every_set(seed, tokens, shape):
    rng = np.random.default_rng(seed)
    rows, evicted_at = attention(rng, tokens, 2), schedule(rng, tokens, 2)
    exact = sm.make_reading("accumulated", rows, shape=shape)
    seen = sm.make_reading("accumulated_cached", rows, shape=shape, evicted_at=evicted_at)
    step, size = tokens - 1, int(rng.integers(1, tokens + 1))
    cache = np.flatnonzero(rng.random(step) < 0.5)
    bound = sm.largest_excess(seen, exact, cache, step, size)
    sets = [np.flatnonzero(mask >> np.arange(tokens) & 1) for mask in range(1 << tokens)]
    excess = max(
        seen.value(cache, step, chosen) - exact.value(cache, step, chosen)
        for chosen in sets
        if len(chosen) <= size
    )
    assert bound >= excess - 1e-9
    if shape.name == "m":
        assert bound == pytest.approx(max(excess, 0), abs=1e-9)


@pytest.mark.parametrize(
    "call",
    [
        lambda rows: sm.make_reading("rows", rows),
        lambda rows: sm.make_reading("row", rows[0, 0]),
        lambda rows: sm.make_reading("row", -rows),
        lambda rows: sm.make_reading("row", rows, shape=np.sqrt),
        lambda rows: sm.make_reading("accumulated_cached", rows),
        lambda rows: sm.make_reading("accumulated_cached", rows, evicted_at=[0, 0, 9, 9]),
        lambda rows: sm.dynamic_function(3, 2),
        lambda rows: sm.dynamic_function(len, 2, convex=True),
        lambda rows: sm.refute_dynamic(sm.make_reading("row", rows), 4),
        lambda rows: sm.refute_dynamic(sm.make_reading("row", rows), 2, "weak"),
        lambda rows: sm.DynamicFunction.best(sm.dynamic_function(len, 30), 29, 15),
        lambda rows: sm.largest_excess(
            sm.make_reading("row", rows), sm.make_reading("row", rows, shape=SHAPES[1]), [], 2, 1
        ),
    ],
)
def test_unusable_arguments_are_refused(call):
    with pytest.raises(BadArgument):
        call(attention(np.random.default_rng(0), 4))
