"""What the cost model refuses, by name, and what it proposes instead."""

from dataclasses import replace

import pytest

from h2o_theory.costs.case import Case
from h2o_theory.costs.choose import Option, cheapest, frontier
from h2o_theory.costs.constants import Constants
from h2o_theory.costs.estimate import estimate
from h2o_theory.costs.hardware import HARDWARE, Hardware, find_hardware
from h2o_theory.costs.memory import require_fit
from h2o_theory.costs.policy import PolicyCost
from h2o_theory.costs.shapes import SHAPES, find_shape, shape_from_config
from h2o_theory.costs.systems import find_system
from h2o_theory.costs.workload import Placement, Workload, parse_placement
from h2o_theory.errors import BadArgument, BadBudget, NotEnoughData, UnknownName

CASE = Case(SHAPES["opt-6.7b"], HARDWARE["t4"], Workload(512, 512), PolicyCost("full"))


@pytest.mark.parametrize(
    ("find", "name", "near"),
    [
        (find_shape, "opt-6.8b", "opt-6.7b"),
        (find_shape, "lama-7b", "llama-7b"),
        (find_hardware, "a10O", "a100"),
        (find_hardware, "h20", "h200"),
        (find_system, "flexgn", "flexgen"),
    ],
)
def test_unknown_names_say_what_is_near(find, name, near):
    with pytest.raises(UnknownName, match=near):
        find(name)


@pytest.mark.parametrize("find", [find_shape, find_hardware])
def test_unknown_names_say_how_to_give_ones_own(find):
    with pytest.raises(UnknownName, match="TOML"):
        find("nothing-like-it")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("layers = 2", "lacks keys.*width"),
        ("layers = = 2", "must be TOML"),
        ("layers=2\nwidth=8\nheads=2\nffn=32\nvocabulary=10\nwidht=3", "Did you mean width"),
        ("layers=0\nwidth=8\nheads=2\nffn=32\nvocabulary=10", "layers must be"),
        ("layers=2\nwidth=8\nheads=3\nkv_heads=2\nffn=32\nvocabulary=10", "multiple of kv_heads"),
    ],
)
def test_files_of_shapes_that_cannot_be_used(tmp_path, text, fault):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(BadArgument, match=fault):
        find_shape(str(path))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("memory = 1e9", "lacks keys.*bandwidth"),
        ("memory=1e9\nbandwidth=0\nflops=1", "bandwidth must be"),
        ("memory=1e9\nbandwidth=1\nflops=1\nlink=-1", "link must be"),
        ("memory=1e9\nbandwidth=1\nflops=1\nusable=2", "usable must be"),
        ('memory="1e9"\nbandwidth=1\nflops=1', "memory must be"),
    ],
)
def test_files_of_hardware_that_cannot_be_used(tmp_path, text, fault):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(BadArgument, match=fault):
        find_hardware(str(path))


def test_files_that_are_not_there_or_no_configuration(tmp_path):
    with pytest.raises(BadArgument, match="cannot be read"):
        find_shape(str(tmp_path / "none.toml"))
    with pytest.raises(BadArgument, match="cannot be read"):
        find_shape(str(tmp_path))
    for text, fault in (("{", "JSON"), ("[]", "settings"), ('{"hidden_size": 8}', "lacks sizes")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(BadArgument, match=fault):
            find_shape(str(tmp_path))
    with pytest.raises(BadArgument, match="num_hidden_layers"):
        shape_from_config({"hidden_size": 8})


@pytest.mark.parametrize("name", ["prompt", "generate", "batch", "batches"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_workloads_that_are_none(name, value):
    with pytest.raises(BadArgument, match=name):
        replace(Workload(3, 4, 1, 1), **{name: value})


@pytest.mark.parametrize(
    "text", ["", "100 0", "a b c d e f", "100 0 100 0 100 101", "-1 0 1 0 1 0"]
)
def test_placements_that_are_none(text):
    with pytest.raises(BadArgument, match="six percentages"):
        parse_placement(text)


def test_shares_above_one_are_refused():
    with pytest.raises(BadArgument, match="weights must be shares"):
        parse_placement("60 60 100 0 100 0")


def test_budgets_that_cannot_be():
    with pytest.raises(BadBudget, match="at least 1"):
        PolicyCost("h2o", (0,))
    with pytest.raises(BadBudget, match="prompt \\+ generate = 1024"):
        estimate(replace(CASE, policy=PolicyCost("h2o", (2000,))))
    with pytest.raises(BadBudget, match="as many as the model's layers"):
        estimate(replace(CASE, policy=PolicyCost("h2o", (5, 6))))
    with pytest.raises(BadArgument, match="bits"):
        PolicyCost("h2o", (3,), bits=-4)
    with pytest.raises(BadArgument, match="cache must be"):
        Constants(cache=-1)


def test_places_that_the_hardware_lacks():
    alone = replace(CASE, hardware=Hardware("alone", 1e12, 1e9, 1e12))
    with pytest.raises(BadArgument, match="without a link"):
        estimate(replace(alone, placement=Placement((0.0, 1.0))))
    linked = replace(CASE, hardware=HARDWARE["a100-80gb"])
    with pytest.raises(BadArgument, match="disk"):
        estimate(replace(linked, placement=Placement((0.0, 0.5))))
    assert estimate(replace(CASE, placement=Placement((0.0, 0.5)))).latency > 0


def test_what_does_not_fit_says_what_would():
    with pytest.raises(BadArgument, match=r"batch 64.*A batch of \d+ fits"):
        require_fit(CASE.with_batch(64))
    long = replace(CASE, workload=Workload(2000, 14000))
    with pytest.raises(BadArgument, match=r"A batch of 1 with \d+ entries fits"):
        require_fit(long)
    with pytest.raises(BadArgument, match="place some of them on the host"):
        require_fit(replace(CASE, model=SHAPES["opt-30b"]))
    require_fit(CASE)


def option(entries, loss, batch=1):
    case = replace(CASE, policy=PolicyCost("h2o", (entries,))).with_batch(batch)
    return Option("h2o", str(entries), entries, estimate(case), loss)


def test_the_cheapest_within_a_target():
    options = [option(100, 0.3), option(200, 0.04), option(400, 0.01), option(50, float("nan"))]
    assert cheapest(options, 0.05).entries == 200
    assert cheapest(options, 0.01).entries == 400
    with pytest.raises(NotEnoughData, match="at best 0.01 by h2o at 400"):
        cheapest(options, 0.001)
    with pytest.raises(NotEnoughData, match="no loss"):
        cheapest([option(50, float("nan"))], 0.1)
    with pytest.raises(BadArgument, match="finite"):
        cheapest(options, float("nan"))


def test_the_frontier_drops_what_is_beaten():
    options = [option(100, 0.3), option(200, 0.4), option(400, 0.01), option(50, float("nan"))]
    assert [one.entries for one in frontier(options)] == [100, 400]
