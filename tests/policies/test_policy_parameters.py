"""What a policy was asked for: the parameters of shipped classes and of a user's own."""

import copy
import pickle
from dataclasses import dataclass, field

import numpy as np
import pytest
from policy_cases import CASES

from h2o_theory import PlainPolicy
from h2o_theory.policies import make_policy


class Mix(PlainPolicy):
    name = "mix"

    def __init__(self, alpha, *, window=4, **more):
        self.kept = alpha * window

    def rate(self, t, positions):
        return positions


class Silent(PlainPolicy):
    def rate(self, t, positions):
        return positions


@dataclass
class Fielded(PlainPolicy):
    alpha: float = 0.5
    sizes: list = field(default_factory=list)

    def __post_init__(self):
        self.alpha = min(self.alpha, 1.0)


@pytest.mark.parametrize(
    "policy, parameters, asked",
    [
        (Mix(0.5), {"alpha": 0.5, "window": 4}, "mix:alpha=0.5"),
        (Mix(alpha=1, window=9), {"alpha": 1, "window": 9}, "mix:alpha=1,window=9"),
        (Mix(1, b="x"), {"alpha": 1, "window": 4, "b": "x"}, "mix:alpha=1,b=x"),
        (Silent(), {}, "plain"),
        (Fielded(), {"alpha": 0.5, "sizes": []}, "plain"),
        (Fielded(7.0), {"alpha": 1.0, "sizes": []}, "plain:alpha=1.0"),
    ],
)
@pytest.mark.parametrize("way", [lambda p: p, copy.copy, copy.deepcopy, "pickle"])
def test_a_plain_policy_knows_what_it_was_given(policy, parameters, asked, way):
    policy = pickle.loads(pickle.dumps(policy)) if way == "pickle" else way(policy)
    assert policy.parameters() == parameters
    assert policy.asked == asked


def test_arrays_are_told_apart():
    names = {Mix(np.arange(n)).asked for n in (2000, 2001)}
    assert len(names) == 2 and all(len(name) < 40 for name in names)


def test_arguments_that_nobody_takes_are_refused():
    with pytest.raises(TypeError, match="Silent"):
        Silent(3)


@pytest.mark.parametrize("text", CASES)
def test_what_was_asked_parses_back_to_an_equal_policy(text):
    policy = make_policy(text)
    again = make_policy(policy.asked)
    assert again == policy and again.asked == policy.asked


def test_only_what_differs_is_said():
    assert make_policy("h2o").asked == make_policy("h2o:rows=renormalised").asked == "h2o"
    assert make_policy("h2o:rows=raw,recent=0.25").asked == "h2o:recent=0.25,rows=raw"
    assert list(make_policy("lru").parameters()) == ["access", "threshold"]
