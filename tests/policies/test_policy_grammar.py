"""One grammar of ``name:parameter=value`` for shipped and a user's policies, masks, transforms."""

import pytest

from h2o_theory.errors import BadArgument
from h2o_theory.masks import parse_masks
from h2o_theory.policies import make_policy, parse_policies
from h2o_theory.transforms.registry import make_transform

MINE = """
from __future__ import annotations
from pathlib import Path
from typing import Literal
import h2o_theory as ht

class Mix(ht.PlainPolicy):
    name = "mix"
    def __init__(self, alpha: float, label: str = "x", on: bool = False, depth: int | None = 3,
                 mode: Literal["a", "b"] = "a", place: Path | None = None, free=None):
        self.alpha = alpha
    def rate(self, t, positions):
        return positions

class Any(Mix):
    name = "any"
    def __init__(self, **options):
        self.options = options

class Odd:
    pass

class Bare(ht.PlainPolicy):
    name = "bare"
"""


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    return f"{tmp_path / 'mine.py'}"


@pytest.mark.parametrize(
    "text, name, value",
    [
        ("alpha=1", "alpha", 1.0),
        ("alpha=1,label=2", "label", "2"),
        ("alpha=1,on=True", "on", True),
        ("alpha=1,on=false", "on", False),
        ("alpha=1,depth=5", "depth", 5),
        ("alpha=1,depth=None", "depth", None),
        ("alpha=1,mode=b", "mode", "b"),
        ("alpha=1,free=0.5", "free", 0.5),
        ("alpha=1,free=text", "free", "text"),
    ],
)
def test_values_follow_the_annotation_or_are_literals(mine, text, name, value):
    found = make_policy(f"{mine}:Mix:{text}").parameters()[name]
    assert found == value and type(found) is type(value)


def test_a_path_and_any_options(mine):
    place = make_policy(f"{mine}:Mix:alpha=1,place=a/b").parameters()["place"]
    assert place.name == "b"
    assert make_policy(f"{mine}:Any:a=1,b=x").asked == "any:a=1,b=x"


def test_two_settings_of_one_class_are_two_policies(mine):
    found = parse_policies(f"{mine}:Mix:alpha=0.5,{mine}:Mix:alpha=0.99,label=y,h2o")
    assert [p.asked for p in found] == ["mix:alpha=0.5", "mix:alpha=0.99,label=y", "h2o"]


@pytest.mark.parametrize(
    "text, says",
    [
        ("Mix:alpha=1,alpha=2", "alpha must be given once.*'1' and '2'"),
        ("Mix:alpha=1,beta=2", "no parameter beta.*alpha=..."),
        ("Mix:alpha=much", "alpha must be float, got 'much'"),
        ("Mix:alpha=1,on=perhaps", "on must be bool"),
        ("Mix:alpha=1,mode=c", "mode must be"),
        ("Mix:alpha=1,depth=1.5", "depth must be int"),
        ("Mix:alpha", "parameter=value"),
        ("Mix", "alpha must be given"),
        ("Bare:alpha=1", "no parameter alpha.*no parameters"),
        ("Odd", "Odd must be a subclass of h2o_theory.PlainPolicy"),
        ("None_", "define a class None_"),
    ],
)
def test_what_cannot_be_read_is_named(mine, text, says):
    with pytest.raises(BadArgument, match=says):
        make_policy(f"{mine}:{text}")


@pytest.mark.parametrize(
    "make, text",
    [
        (make_policy, "h2o:recent=0.2,recent=0.3"),
        (parse_masks, "topk:heavy=0.2,heavy=0.3"),
        (make_transform, "kivi:bits=2,bits=4"),
    ],
)
def test_a_repeated_parameter_is_refused_everywhere(make, text):
    with pytest.raises(BadArgument, match="must be given once"):
        make(text)


def test_slashes_and_colons_in_a_value_stay_in_it():
    assert make_policy("schedule:file=C:/a.npz").file == "C:/a.npz"
    assert [p.name for p in parse_policies("lru,schedule:file=a:b.npz,h2o")] == [
        "lru",
        "schedule",
        "h2o",
    ]
