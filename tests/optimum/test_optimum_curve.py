"""What optimum_curve and to_fixed_point promise beside the optimum itself."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from optimum_referees import replayed_value, softmax_rows, tied_rows

from h2o_theory.errors import BadArgument, BadBudget, InvalidAttention, OutOfRange
from h2o_theory.optimum import FRACTION_BITS, optimum_curve, to_fixed_point
from h2o_theory.optimum.path import augment, build_network, empty_flow


@pytest.fixture(scope="module")
def fixed():
    return to_fixed_point(softmax_rows(40, 2))


def test_shapes_and_units(fixed):
    curve = optimum_curve(fixed, 12, budgets=[4, 12, 4], prefill=10)
    assert curve.values.shape == (12,) and curve.values.dtype == np.int64
    assert curve.gains.shape == (11,)
    assert (curve.tokens, curve.prefill, curve.n_scored) == (40, 10, 30)
    assert curve.fraction_bits == FRACTION_BITS == 36
    np.testing.assert_allclose(curve.retained_mass, curve.values / 2**36 / 30, rtol=1e-15)
    assert list(curve.schedules) == [4, 12]
    schedule = curve.schedules[12]
    assert (schedule.budget, schedule.prefill) == (12, 10)
    assert schedule.evicted_at.shape == (40,) and schedule.evicted_at.dtype == np.int64
    assert schedule.prices.shape == (30,) and schedule.prices.dtype == np.int64


def test_a_shorter_curve_and_other_budgets_change_nothing(fixed):
    whole = optimum_curve(fixed, 40, budgets=[3, 9, 17])
    part = optimum_curve(fixed, 9, budgets=[9])
    assert part.values.tolist() == whole.values[:9].tolist()
    assert part.schedules[9].evicted_at.tolist() == whole.schedules[9].evicted_at.tolist()
    assert part.schedules[9].prices.tolist() == whole.schedules[9].prices.tolist()


def test_full_budget_keeps_everything(fixed):
    curve = optimum_curve(fixed, 40, budgets=[40])
    assert curve.values[-1] == fixed.sum()
    assert (curve.schedules[40].evicted_at == 40).all()
    assert curve.retained_mass[-1] == pytest.approx(1.0, abs=1e-9)


def test_budget_one_sees_only_itself(fixed):
    curve = optimum_curve(fixed, 1, budgets=[1])
    assert curve.values.tolist() == [fixed.diagonal().sum()]
    assert curve.schedules[1].evicted_at[:-1].tolist() == list(range(39))


def test_prefill_zero_and_one_differ_by_the_first_row(fixed):
    streaming = optimum_curve(fixed, 20, budgets=[7])
    prefilled = optimum_curve(fixed, 20, budgets=[7], prefill=1)
    assert (streaming.values - prefilled.values == fixed[0, 0]).all()
    assert streaming.schedules[7].evicted_at.tolist() == prefilled.schedules[7].evicted_at.tolist()
    assert streaming.schedules[7].prices.tolist() == prefilled.schedules[7].prices.tolist()


def test_a_prefill_cuts_once_at_its_end(fixed):
    evicted_at = optimum_curve(fixed, 6, budgets=[6], prefill=25).schedules[6].evicted_at
    assert (evicted_at[:25] >= 24).all()
    assert (evicted_at[:25] > 24).sum() == 5


def test_prefill_of_everything_scores_nothing(fixed):
    curve = optimum_curve(fixed, 3, budgets=[2], prefill=40)
    assert curve.values.tolist() == [0, 0, 0]
    assert curve.n_scored == 0
    assert np.isnan(curve.retained_mass).all()
    assert curve.schedules[2].prices.size == 0
    assert replayed_value(fixed, curve.schedules[2]) == 0


def test_stops_gaining_when_everything_is_kept():
    # Each row looks at itself and at the row before: two entries are enough.
    fixed = to_fixed_point(np.eye(50) * 0.5 + np.eye(50, k=-1) * 0.5)
    curve = optimum_curve(fixed, 50, budgets=[2, 3, 50])
    assert curve.gains.tolist() == [fixed.sum() - fixed.diagonal().sum()] + [0] * 48
    for budget in (3, 50):
        assert curve.schedules[budget].value == fixed.sum()
        assert not curve.schedules[budget].prices.any()


def test_the_search_ends_with_the_first_slot_that_gains_nothing():
    fixed = to_fixed_point(np.eye(50) * 0.5 + np.eye(50, k=-1) * 0.5)
    network = build_network(fixed, 1)
    gains = np.zeros(49, dtype=np.int64)
    assert augment(network, empty_flow(fixed, 1, network), gains) == 1
    assert np.flatnonzero(gains).tolist() == [0]


@pytest.mark.parametrize("rows", [softmax_rows(30, 8), tied_rows(30, 8)])
def test_appended_tokens_without_attention_change_nothing(rows):
    longer = np.zeros((35, 35))
    longer[:30, :30] = rows
    before = optimum_curve(to_fixed_point(rows), 30).values
    assert optimum_curve(to_fixed_point(longer), 30).values.tolist() == before.tolist()


def test_scaling_the_rows_scales_the_optimum():
    fixed = to_fixed_point(softmax_rows(30, 6))
    once, thrice = optimum_curve(fixed, 30, budgets=[5]), optimum_curve(3 * fixed, 30, budgets=[5])
    assert thrice.values.tolist() == (3 * once.values).tolist()
    assert thrice.schedules[5].evicted_at.tolist() == once.schedules[5].evicted_at.tolist()


def test_threads_agree_with_one_thread():
    heads = [to_fixed_point(softmax_rows(150, seed)) for seed in range(6)]
    alone = [optimum_curve(head, 40).values.tolist() for head in heads]
    with ThreadPoolExecutor(4) as pool:
        together = pool.map(lambda head: optimum_curve(head, 40).values.tolist(), heads)
    assert list(together) == alone


def test_inputs_stay_and_results_are_frozen(fixed):
    before = fixed.copy()
    curve = optimum_curve(fixed, 9, budgets=[9])
    assert (fixed == before).all()
    schedule = curve.schedules[9]
    for array in (curve.values, schedule.evicted_at, schedule.prices):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(FrozenInstanceError):
        schedule.value = 0
    with pytest.raises(FrozenInstanceError):
        curve.tokens = 3
    with pytest.raises(TypeError):
        curve.schedules[1] = schedule


def test_other_memory_layouts_are_read_right(fixed):
    values = optimum_curve(fixed, 12).values.tolist()
    assert optimum_curve(np.asfortranarray(fixed), 12).values.tolist() == values
    assert optimum_curve(np.repeat(fixed, 2, axis=1)[:, ::2], 12).values.tolist() == values


@pytest.mark.parametrize("max_budget, budgets", [(0, ()), (-1, ()), (41, ()), (5, [6]), (5, [0])])
def test_budgets_out_of_range(fixed, max_budget, budgets):
    with pytest.raises(BadBudget, match=r"must be 1 to \d+ tokens"):
        optimum_curve(fixed, max_budget, budgets=budgets)


@pytest.mark.parametrize("prefill", [-1, 41])
def test_prefill_out_of_range(fixed, prefill):
    with pytest.raises(OutOfRange, match="prefill must be 0 to 40"):
        optimum_curve(fixed, 5, prefill=prefill)


@pytest.mark.parametrize("arguments", [{"max_budget": 2.5}, {"max_budget": 4, "prefill": "2"}])
def test_numbers_have_to_be_integers(fixed, arguments):
    with pytest.raises(BadArgument, match="whole number"):
        optimum_curve(fixed, **arguments)


def test_fixed_point_rounds_to_the_nearest_unit():
    rows = softmax_rows(20, 1)
    fixed = to_fixed_point(rows)
    assert fixed.dtype == np.int64 and fixed.flags.c_contiguous
    assert np.abs(fixed / 2.0**36 - rows).max() <= 2.0**-37
    assert to_fixed_point([[1]]).tolist() == [[2**36]]
    assert to_fixed_point(rows.astype(np.float32)).dtype == np.int64


@pytest.mark.parametrize(
    "position, value, message",
    [
        ((3, 1), np.nan, r"mean_rows\[3, 1\]: .*must be finite"),
        ((1, 3), np.nan, r"mean_rows\[1, 3\]: .*must be finite"),
        ((3, 1), np.inf, r"mean_rows\[3, 1\]: .*must be finite"),
        ((3, 1), -1e-3, r"mean_rows\[3, 1\]: .*negative"),
        ((1, 3), 1e-3, r"mean_rows\[1, 3\]: .*must be causal.*query 1 cannot see key 3"),
    ],
)
def test_attention_that_cannot_be(position, value, message):
    rows = softmax_rows(6, 0)
    rows[position] = value
    with pytest.raises(InvalidAttention, match=message):
        to_fixed_point(rows)


@pytest.mark.parametrize("shape", [(0, 0), (3,), (3, 4), (2, 3, 3)])
def test_attention_of_the_wrong_shape(shape):
    with pytest.raises(BadArgument, match="attention matrix"):
        to_fixed_point(np.zeros(shape))


def test_attention_that_is_not_numbers():
    with pytest.raises(BadArgument, match="real numbers"):
        to_fixed_point(np.full((2, 2), "0.5"))
    with pytest.raises(BadArgument, match="int64"):
        optimum_curve(softmax_rows(4, 0), 2)


def test_the_limit_of_int64_is_stated():
    with pytest.raises(BadArgument, match=r"below 2\*\*24"):
        to_fixed_point(np.eye(4) * 2.0**22)
    with pytest.raises(BadArgument, match=r"below 2\*\*24"):
        optimum_curve(np.eye(4, dtype=np.int64) * 2**58, 2)
    largest = np.tril(np.full((4, 4), (2**60 - 1000) // 10))
    curve = optimum_curve(largest, 4)
    assert curve.values[-1] == largest.sum()


def test_without_scipy_the_benchmark_imports_and_says_what_is_missing():
    code = (
        "import sys\n"
        "sys.modules['scipy'] = None\n"
        "import benchmarks.optimum as bench\n"
        "from h2o_theory.errors import MissingDependency\n"
        "try:\n"
        "    bench.run()\n"
        "except MissingDependency as error:\n"
        "    print(error)\n"
        "print([name for name in ('networkx', 'torch') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    message, loaded = done.stdout.splitlines()
    assert "pip install scipy" in message
    assert loaded == "[]"
