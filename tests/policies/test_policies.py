"""Parameters, parts and the registry."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from h2o_theory.errors import BadArgument, BadBudget, UnknownName
from h2o_theory.figures.looks import LOOKS, policy_look
from h2o_theory.policies import Policy, available, make_policy, parse_policies, register
from h2o_theory.policies.choose import lowest
from h2o_theory.policies.parts import resolve_parts


@pytest.mark.parametrize("name", sorted(available()))
def test_parts_sum_to_the_budget(name):
    policy = make_policy(name)
    for budget in range(1, 40):
        parts = policy.parts(budget)
        assert parts.n_sink + parts.n_heavy + parts.n_recent == budget
        assert min(parts.n_sink, parts.n_heavy, parts.n_recent) >= 0
        assert f"n_recent={parts.n_recent}" in policy.describe(budget)


@pytest.mark.parametrize("name", sorted(available()))
def test_every_policy_is_documented(name):
    cls = available()[name]
    assert cls.__doc__ and cls.source and cls.kind in ("online", "clairvoyant", "reference")
    assert len(cls.__doc__.splitlines()[0]) < 100


def test_looks_are_distinct():
    looks = {name: policy_look(name) for name in LOOKS}
    assert set(looks) <= set(available())
    for kind in ("colour", "marker and dash"):
        seen = [
            look.colour if kind == "colour" else (look.marker, look.dash) for look in looks.values()
        ]
        assert len(set(seen)) == len(seen), kind


def test_h2o_parts():
    assert make_policy("h2o").parts(51) == make_policy("h2o:recent=0.5").parts(51)
    parts = make_policy("h2o:recent=0.25,n_sink=2").parts(42)
    assert (parts.n_sink, parts.n_heavy, parts.n_recent) == (2, 30, 10)
    assert make_policy("h2o:recent=0").parts(10).n_recent == 1
    assert make_policy("h2o:n_heavy=7").parts(10) == make_policy("h2o:n_recent=3").parts(10)
    every = make_policy("h2o:n_sink=1,n_heavy=6,n_recent=3")
    assert resolve_parts(every, 10) == every.parts(10)
    with pytest.raises(BadBudget, match="protected parts"):
        every.parts(9)
    with pytest.raises(BadBudget, match="do not make up"):
        resolve_parts(every, 11)
    assert every.describe(10).count("n_heavy=6") == 1


def test_unknown_policy_says_what_is_near():
    with pytest.raises(UnknownName, match="Did you mean h2o"):
        make_policy("h20")
    with pytest.raises(UnknownName, match="recent"):
        make_policy("xyzzy")


@pytest.mark.parametrize(
    "text",
    [
        "h2o:recent=2",
        "h2o:recent=many",
        "h2o:rows=cooked",
        "h2o:group=median",
        "h2o:window=3",
        "h2o:recent",
        "h2o:n_heavy=-1",
        "sink:n_sink=-1",
        "sink:n_sink=1.5",
        "random:form=often",
        "tova:shared=model",
        "greedy:h=square",
        "lru:k=2",
        "lru:access=hot",
        "lru:threshold=0.5",
        "lfu:access=top_m,threshold=2.5",
        "belady:access=relative,threshold=2",
        "lrfu:threshold=0.1",
        "lrfu:access=uniform,rows=raw",
        "snapkv:kernel=4",
        "snapkv:pool=sum",
        "coverage:cap=0",
        "buzz:stride=1",
        "scissorhands_code:quantile=1",
        "algorithm1:reading=wishful",
        "keyformer:form=app",
    ],
)
def test_bad_parameters_are_refused(text):
    with pytest.raises(BadArgument) as caught:
        make_policy(text)
    assert text.partition(":")[0] in str(caught.value)


def test_parameters_after_a_comma_belong_to_the_policy_before():
    policies = parse_policies("h2o:recent=0.25,rows=raw,lru,random:form=fresh")
    assert [p.name for p in policies] == ["h2o", "lru", "random"]
    assert (policies[0].recent, policies[0].rows, policies[2].form) == (0.25, "raw", "fresh")


def test_explicit_sinks_must_fit():
    with pytest.raises(BadBudget, match="n_sink=8"):
        make_policy("sink:n_sink=8").parts(8)
    assert make_policy("sink").parts(3).n_sink == 2


def test_names_are_unique():
    with pytest.raises(BadArgument, match="name of its own"):

        @register
        @dataclass(frozen=True)
        class Again(Policy):
            name: ClassVar[str] = "h2o"


def test_victim_is_the_oldest_of_the_lowest():
    score = np.array([3.0, 1.0, 1.0, 1.0, 2.0, np.nan, 0.0, 9.0])
    position = np.array([4, 9, 2, 6, 0, 5, 7, 1])
    assert lowest(score, position, 0, 6) == 2
    assert lowest(score, position, 3, 6) == 3
    assert lowest(score, position, 0, 8) == 6
    assert lowest(score, position, 7, 8) == 7
    assert lowest(np.full(3, np.nan), np.array([2, 1, 0]), 0, 2) == 1
    rng = np.random.default_rng(0)
    for _ in range(200):
        count = rng.integers(1, 30)
        score, position = rng.integers(0, 5, size=count).astype(float), rng.permutation(count)
        first = rng.integers(0, count)
        last = rng.integers(first + 1, count + 1)
        want = min(range(first, last), key=lambda i: (score[i], position[i]))
        assert lowest(score, position, first, last) == want
