"""The cost model: hand-computed cases, units, and what must grow with what."""

import doctest
import importlib
import json
import pkgutil
from dataclasses import replace

import numpy as np
import pytest

import h2o_theory.costs
from h2o_theory.costs.case import Case
from h2o_theory.costs.constants import IDEAL, Constants
from h2o_theory.costs.estimate import decode_at_peak, estimate, prefill_at_peak
from h2o_theory.costs.hardware import HARDWARE, Hardware
from h2o_theory.costs.memory import fits, largest_batch, peak_memory
from h2o_theory.costs.policy import PolicyCost
from h2o_theory.costs.shapes import SHAPES, ModelShape, find_shape, shape_from_config
from h2o_theory.costs.systems import SYSTEMS, System
from h2o_theory.costs.units import GIB
from h2o_theory.costs.workload import Placement, Workload, parse_placement, whole_tensors

SMALL = ModelShape("small", layers=2, width=8, heads=2, ffn=32, vocabulary=10)
"""d = 4; a block has 2 * 8 * 4 * 4 = 256 and 2 * 8 * 32 = 512 numbers; the table has 80."""
BOX = Hardware("box", memory=1e6, bandwidth=1000.0, flops=1e4, link=100.0, host_memory=1e6)
LINEAR = System("linear", overlap=False, link_share=1.0)
ZIGZAG = System("zigzag", overlap=True, link_share=1.0)


def case(**changes):
    plain = {
        "model": SMALL,
        "hardware": BOX,
        "workload": Workload(3, 5),
        "policy": PolicyCost("full"),
        "system": LINEAR,
        "placement": Placement(),
    }
    return Case(**(plain | changes))


def modules():
    return [f"h2o_theory.costs.{found.name}" for found in
            pkgutil.iter_modules(h2o_theory.costs.__path__)]  # fmt: skip


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_a_shape_by_hand():
    assert SMALL.block_parameters == 768
    assert SMALL.parameters == 2 * 768 + 80
    assert SMALL.weight_bytes == 2 * 1616
    assert SMALL.entry_bytes == 2 * 2 * 4 * 2 and SMALL.token_bytes == 64


@pytest.mark.parametrize(
    ("name", "billions", "token"),
    [
        ("opt-6.7b", 6.66, 524288),
        ("opt-13b", 12.85, 819200),
        ("opt-30b", 29.97, 1376256),
        ("opt-66b", 65.7, 4 * 64 * 9216),
        ("llama-7b", 6.74, 524288),
        ("llama-13b", 13.02, 819200),
        ("llama-3-8b", 8.03, 131072),
        ("llama-3-70b", 70.55, 327680),
        ("gpt-neox-20b", 20.55, 4 * 44 * 6144),
        ("smollm2-135m", 0.1345, 4 * 30 * 192),
    ],
)
def test_shapes_have_the_parameters_and_cache_of_the_models(name, billions, token):
    shape = find_shape(name)
    assert shape.parameters / 1e9 == pytest.approx(billions, rel=0.001)
    assert shape.token_bytes == token


def test_a_shape_from_a_configuration_of_transformers():
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(
        "llama", hidden_size=576, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, intermediate_size=1536, vocab_size=49152, tie_word_embeddings=True,
    )  # fmt: skip
    for given in (config, config.to_dict()):
        assert replace(shape_from_config(given), name="smollm2-135m") == SHAPES["smollm2-135m"]


def test_entries_over_time_by_hand():
    # Queries of the four steps see 4, 5, 6, 7 tokens; a budget of 5 holds 4, 5, 5, 5.
    load = Workload(3, 5)
    assert PolicyCost("full").mean_entries(2, load).tolist() == [5.5, 5.5]
    assert PolicyCost("h2o", (5,)).mean_entries(2, load).tolist() == [4.75, 4.75]
    assert PolicyCost("h2o", (2, 6)).mean_entries(2, load).tolist() == [2.0, 5.25]
    assert PolicyCost("h2o", (5,)).entries(1, 3)[0] == 3
    for k in (1.5, 3.5, 4.5, 9):
        seen = np.minimum([4, 5, 6, 7], k).mean()
        assert PolicyCost("h2o", (k,)).mean_entries(1, load)[0] == pytest.approx(seen)


def test_a_decode_by_hand():
    peak = decode_at_peak(case(policy=PolicyCost("h2o", (5,), bookkeeping=1)))
    assert peak["weights"] == pytest.approx(4 * 3232 / 1000)
    assert peak["cache"] == pytest.approx(4 * 2 * 4.75 * 32 / 1000)
    assert peak["bookkeeping"] == pytest.approx(4 * 2 * 4.75 * 2 / 1000)


def test_a_prefill_by_hand():
    peak = prefill_at_peak(case())
    assert peak["flops"] == pytest.approx((2 * 1616 * 3 + 4 * 2 * 2 * 4 * 9) / 1e4)
    assert peak["scores"] == pytest.approx(2 * 2 * 2 * 9 / 1000)
    assert peak["store"] == pytest.approx(2 * 3 * 32 / 1000)


def test_total_and_metric_by_hand():
    found = estimate(case(), Constants(weights=2, cache=3, store=1))
    # Arithmetic of a step is 2 * 1616 / 1e4 = 0.3232 s, less than reading the weights twice.
    decode = 2 * 4 * 3.232 + 3 * 4 * 2 * 5.5 * 0.032
    prefill = 1.0272 + 2 * 3 * 0.032
    assert found.decode.seconds == pytest.approx(decode)
    assert found.prefill.seconds == pytest.approx(prefill)
    assert found.tokens_per_second == pytest.approx(5 / (decode + prefill))
    assert found.decode.bound == "weights on the device"


@pytest.mark.parametrize(("system", "together"), [(LINEAR, sum), (ZIGZAG, max)])
def test_streamed_weights_add_up_or_overlap(system, together):
    placed = Placement((0.0, 1.0), (1.0, 0.0), (1.0, 0.0))
    load = Workload(3, 5, batch=1, batches=2)
    found = estimate(case(system=system, placement=placed, workload=load))
    link = 4 * 3232 / 100  # once for both batches
    device = 4 * 2 * 3.232 + 4 * 2 * 2 * 5.5 * 0.032
    assert found.decode.seconds == pytest.approx(together((device, link)))


def test_attention_on_the_host_keeps_the_cache_off_the_link():
    placed = Placement((1.0, 0.0), (0.0, 1.0), (1.0, 0.0))
    constants = Constants(host_attention=50.0, host_overhead=0.5)
    on_host = replace(LINEAR, host_attention=True)
    cache = 4 * 2 * 5.5 * 32
    here = estimate(case(placement=placed, system=on_host), constants).decode
    assert here.terms["attention on the host"] == pytest.approx(cache / 50)
    assert here.terms["handing over to the host"] == pytest.approx(0.5 * 2 * 4)
    there = estimate(case(placement=placed), constants).decode
    assert there.terms["cache over the link"] == pytest.approx(cache / 100)
    assert "cache over the link" not in here.terms


def test_memory_by_hand():
    system = replace(LINEAR, score_copies=2, hidden_copies=6)
    peaks = peak_memory(case(system=system, workload=Workload(3, 5, batch=2)))
    work = 2 * (2 * 2 * 9 * 2 + 6 * 3 * 8 * 2)
    assert peaks.device == 3232 + 2 * 8 * 64 + work and peaks.host == 0
    away = Placement((0.0, 1.0), (0.0, 1.0), (0.0, 1.0))
    peaks = peak_memory(case(system=system, placement=away))
    assert peaks.device == 2 * 768 + (2 * 2 * 9 * 2 + 6 * 3 * 8 * 2) + 3 * 8 * 32
    assert peaks.host == 3232 + 8 * 64 + 3 * 8 * 2


def test_flexgen_places_whole_matrices():
    model = SHAPES["opt-30b"]
    assert whole_tensors(0.2, model) == pytest.approx(1 / 12)
    assert whole_tensors(0.3, model) == pytest.approx(1 / 12 + 1 / 3)
    assert whole_tensors(1.0, model) == pytest.approx(1)
    assert parse_placement("20 80 0 100 0 100").weights == (0.2, 0.8)


def test_the_largest_batch_fits_and_the_next_does_not():
    for entries in (500, 2000, 4096):
        one = Case(
            SHAPES["opt-6.7b"],
            HARDWARE["a100-80gb"],
            Workload(2048, 2048),
            PolicyCost("h2o", (entries,)),
        )
        most = largest_batch(one)
        assert most > 1 and fits(one.with_batch(most)) and not fits(one.with_batch(most + 1))


def test_the_batches_of_the_paper_are_near_the_largest_that_fit():
    full = Case(SHAPES["opt-6.7b"], HARDWARE["a100-80gb"], Workload(2048, 2048),
                PolicyCost("full"))  # fmt: skip
    assert largest_batch(full) == 25 and not fits(full.with_batch(64))
    assert largest_batch(replace(full, policy=PolicyCost("h2o", (818,)))) in (64, 65)


REAL = Case(
    SHAPES["opt-13b"], HARDWARE["a100-80gb"], Workload(1024, 512, 4), PolicyCost("h2o", (300,))
)


@pytest.mark.parametrize("seed", range(20))
def test_more_costs_more_and_better_hardware_less(seed):
    rng = np.random.default_rng(seed)
    load = Workload(*map(int, rng.integers([8, 2, 1, 1], [3000, 900, 9, 4])))
    entries = float(rng.integers(1, load.tokens))
    system = list(SYSTEMS.values())[seed % len(SYSTEMS)]
    constants = Constants(1.5, 2, 500, 2, 10, 5, 1e10, 1e-3, 1e-4)
    one = replace(REAL, workload=load, system=system,
                  policy=PolicyCost("h2o", (entries,), bookkeeping=1))  # fmt: skip
    before = estimate(one, constants)
    larger = [
        replace(one, policy=replace(one.policy, budget=(min(entries + 50, load.tokens),))),
        replace(one, policy=replace(one.policy, bits=32)),
        replace(one, model=SHAPES["opt-30b"]),
        one.with_batch(load.batch + 1),
        replace(one, workload=replace(load, prompt=load.prompt + 100)),
        replace(one, workload=replace(load, generate=load.generate + 10)),
        replace(one, hardware=HARDWARE["t4"]),
    ]
    for other in larger:
        after = estimate(other, constants)
        assert after.latency >= before.latency
        if other.hardware == one.hardware:
            assert after.peaks.device >= before.peaks.device
    assert estimate(one, IDEAL).latency <= before.latency
    assert estimate(replace(one, hardware=HARDWARE["h200"]), constants).latency < before.latency


def test_units_cancel():
    """Twice as fast in everything is half the time; a model of bytes twice as wide twice it."""
    fast = replace(BOX, bandwidth=2000.0, flops=2e4, link=200.0)
    placed = Placement((0.5, 0.5), (0.5, 0.5), (1.0, 0.0))
    slow_run, fast_run = (estimate(case(hardware=h, placement=placed)) for h in (BOX, fast))
    assert slow_run.latency == pytest.approx(2 * fast_run.latency)
    wide = replace(SMALL, number_bytes=4.0)
    one, other = (decode_at_peak(case(model=m)) for m in (SMALL, wide))
    assert other["weights"] == 2 * one["weights"] and other["cache"] == 2 * one["cache"]
    four = PolicyCost("full", bits=4)
    assert decode_at_peak(case(policy=four))["cache"] == pytest.approx(one["cache"] / 4)


def test_a_shape_from_a_folder_and_a_toml(tmp_path):
    sizes = {"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2}
    config = {"model_type": "opt", "ffn_dim": 32, "vocab_size": 10, **sizes}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert find_shape(str(tmp_path)).block_parameters == 768
    (tmp_path / "mine.toml").write_text(
        "layers = 2\nwidth = 8\nheads = 2\nffn = 32\nvocabulary = 10\n"
    )
    assert replace(find_shape(str(tmp_path / "mine.toml")), name="small") == SMALL


def test_this_machine_is_measured():
    from h2o_theory.costs.hardware import find_hardware

    found = find_hardware("cpu")
    assert 1e8 < found.bandwidth < 1e13 and 1e8 < found.flops < 1e15
    assert found.memory > 0.1 * GIB and found.link == 0
