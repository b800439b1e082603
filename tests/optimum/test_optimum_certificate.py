"""The certificate checker accepts optimal schedules and rejects each kind of tampering."""

import re
from dataclasses import replace

import numpy as np
import pytest
from optimum_referees import softmax_rows

from h2o_theory.errors import BadArgument, InvalidAttention
from h2o_theory.optimum import Schedule, check_certificate, optimum_curve, to_fixed_point

TOKENS, BUDGET, PREFILL = 30, 8, 5


@pytest.fixture(scope="module")
def fixed():
    return to_fixed_point(softmax_rows(TOKENS, 4))


@pytest.fixture(scope="module")
def schedule(fixed):
    return optimum_curve(fixed, BUDGET, budgets=[BUDGET], prefill=PREFILL).schedules[BUDGET]


def altered(array, position, value):
    copy = array.copy()
    copy[position] = value
    return copy


def first_victim(schedule):
    return int(np.flatnonzero(schedule.evicted_at < TOKENS)[0])


def test_accepts_the_optimum(fixed, schedule):
    certificate = check_certificate(fixed, schedule)
    assert certificate.feasible and certificate.optimal
    assert certificate.value == certificate.bound == schedule.value
    assert certificate.gap == 0
    assert certificate.message == "optimal"
    assert schedule.bound == certificate.bound and schedule.status == "optimal" and schedule.method


def test_gap_is_in_the_units_of_the_rows(fixed, schedule):
    unpaid = replace(schedule, prices=np.zeros_like(schedule.prices))
    certificate = check_certificate(fixed, unpaid)
    # Free slots: every key stays, so the bound is the whole mass of the scored rows.
    assert certificate.bound == fixed[PREFILL:].sum()
    assert certificate.gap == certificate.bound - schedule.value > 0


TAMPERED = {
    "an eviction left out": (
        lambda s: replace(s, evicted_at=altered(s.evicted_at, first_victim(s), TOKENS)),
        "row .* sees 9 entries, budget 8",
    ),
    "an eviction one step late": (
        lambda s: replace(
            s, evicted_at=altered(s.evicted_at, first_victim(s), s.evicted_at[first_victim(s)] + 1)
        ),
        "sees 9 entries",
    ),
    "evicted before it arrives": (
        lambda s: replace(s, evicted_at=altered(s.evicted_at, 20, 19)),
        "key 20 is evicted at 19, before",
    ),
    "evicted within the prefill": (
        lambda s: replace(s, evicted_at=altered(s.evicted_at, 0, PREFILL - 2)),
        "key 0 is evicted at 3, before",
    ),
    "evicted beyond the end": (
        lambda s: replace(s, evicted_at=altered(s.evicted_at, 29, TOKENS + 1)),
        "key 29 is evicted at 31, after",
    ),
    "evicted_at too short": (
        lambda s: replace(s, evicted_at=s.evicted_at[:-1]),
        r"evicted_at has shape \[29\]",
    ),
    "evicted_at not integers": (
        lambda s: replace(s, evicted_at=s.evicted_at + 0.0),
        "of float64, expected",
    ),
    "a larger value stated": (
        lambda s: replace(s, value=s.value + 1),
        "states a value of",
    ),
    "a smaller value stated": (
        lambda s: replace(s, value=s.value - 1),
        "states a value of",
    ),
    "another bound stated": (
        lambda s: replace(s, bound=s.bound + 1),
        "states a bound of",
    ),
    "one price too high": (
        lambda s: replace(s, prices=altered(s.prices, 3, s.prices[3] + 1)),
        "not proved optimal: the bound exceeds the value by",
    ),
    "no prices": (
        lambda s: replace(s, prices=np.zeros_like(s.prices)),
        "not proved optimal",
    ),
    "prices in another order": (
        lambda s: replace(s, prices=np.roll(s.prices, 5)),
        "not proved optimal",
    ),
    "a negative price": (
        lambda s: replace(s, prices=altered(s.prices, 2, -1)),
        "the price of row 7 is negative: -1",
    ),
    "prices that would wrap around": (
        lambda s: replace(s, prices=np.full_like(s.prices, 2**62)),
        "the prices sum to",
    ),
    "prices too short": (
        lambda s: replace(s, prices=s.prices[1:]),
        r"prices has shape \[24\]",
    ),
    "prices not integers": (
        lambda s: replace(s, prices=s.prices / 2),
        "of float64, expected",
    ),
    "a smaller budget": (
        lambda s: replace(s, budget=BUDGET - 1),
        "sees 8 entries, budget 7",
    ),
    "a larger budget": (
        lambda s: replace(s, budget=BUDGET + 1),
        "not proved optimal",
    ),
    "no budget": (
        lambda s: replace(s, budget=0),
        r"budget 0 is not in 1 .. 30",
    ),
    "a budget above T": (
        lambda s: replace(s, budget=TOKENS + 1),
        r"budget 31 is not in 1 .. 30",
    ),
    "an earlier prefill": (
        lambda s: replace(s, prefill=PREFILL - 1),
        r"prices has shape \[25\]",
    ),
    "a prefill above T": (
        lambda s: replace(s, prefill=TOKENS + 1),
        "prefill 31 is not in",
    ),
}


@pytest.mark.parametrize("kind", TAMPERED)
def test_rejects(kind, fixed, schedule):
    tamper, message = TAMPERED[kind]
    certificate = check_certificate(fixed, tamper(schedule))
    assert not certificate.optimal
    assert re.search(message, certificate.message)


def test_rejects_a_feasible_schedule_that_is_not_optimal(fixed, schedule):
    # The sliding window: the oldest leaves.
    window = np.minimum(np.maximum(np.arange(TOKENS) + BUDGET - 1, PREFILL - 1), TOKENS)
    certificate = check_certificate(fixed, replace(schedule, evicted_at=window))
    assert certificate.feasible
    assert certificate.value < schedule.value
    assert certificate.gap > 0
    assert not certificate.optimal


def test_rejects_rows_it_was_not_made_for(fixed, schedule):
    other = to_fixed_point(softmax_rows(TOKENS, 5))
    certificate = check_certificate(other, schedule)
    assert certificate.feasible
    assert not certificate.optimal


def test_one_changed_entry_shows(fixed, schedule):
    t = TOKENS - 1
    changed = fixed.copy()
    changed[t, t] += 1
    certificate = check_certificate(changed, schedule)
    assert certificate.value == schedule.value + 1
    assert "states a value of" in certificate.message


def test_a_schedule_from_elsewhere_can_be_proved():
    # Worked by hand: two slots, three keys; key 0 is worth 2 to row 2, key 1 only 1.
    rows = np.array([[1, 0, 0], [3, 1, 0], [2, 1, 0]])
    schedule = Schedule(2, 0, 7, np.array([3, 1, 3]), np.array([0, 1]), 7, "by hand")
    assert check_certificate(rows, schedule).optimal
    assert optimum_curve(rows, 2).values[-1] == 7


@pytest.mark.parametrize(
    "bad, error",
    [
        (np.zeros((3, 4), dtype=np.int64), BadArgument),
        (np.zeros((3, 3)), BadArgument),
        (np.array([[1, 1], [0, 1]]), InvalidAttention),
        (np.array([[1, 0], [-1, 1]]), InvalidAttention),
    ],
)
def test_unusable_rows_raise(bad, error, schedule):
    with pytest.raises(error):
        check_certificate(bad, schedule)
