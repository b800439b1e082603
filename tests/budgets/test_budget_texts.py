"""Budgets as written: numbers of tokens and shares, resolved exactly."""

import pytest

from h2o_theory.budgets import parse_budgets
from h2o_theory.errors import BadBudget


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        ("64", 100, 64),
        (64, 64, 64),
        ("10%", 512, 51),
        ("10 %", 512, 51),
        ("12.5%", 8, 1),
        ("29%", 100, 29),  # in floats 0.29 * 100 is 28.999999999999996
        ("58%", 50, 29),
        ("0.1%", 100, 1),
        ("100%", 7, 7),
    ],
)
def test_budget_is_resolved_exactly(text, tokens, expected):
    (budget,) = parse_budgets([text])
    assert budget.resolve(tokens) == expected


def test_every_whole_percent_is_the_floor():
    for percent in range(1, 101):
        for tokens in (1, 7, 99, 1000, 4096):
            (budget,) = parse_budgets([f"{percent}%"])
            assert budget.resolve(tokens) == max(1, percent * tokens // 100)


@pytest.mark.parametrize("text", ["0", "0%", "-3", "12o", "ten", "1.5", "101%", "", "10%%", "nan"])
def test_bad_budgets_are_refused(text):
    with pytest.raises(BadBudget):
        parse_budgets([text])


def test_a_typo_in_a_budget_suggests_the_number():
    with pytest.raises(BadBudget, match="Did you mean 12%"):
        parse_budgets("1o2%".replace("o", "x"))
    with pytest.raises(BadBudget, match="Did you mean 12?"):
        parse_budgets(["12q"])


def test_budget_above_the_sequence_is_refused():
    (budget,) = parse_budgets("65")
    with pytest.raises(BadBudget, match="65"):
        budget.resolve(64)


def test_lists_of_budgets():
    assert [b.text for b in parse_budgets("5%, 64,20%")] == ["5%", "64", "20%"]
    assert [b.text for b in parse_budgets(32)] == ["32"]
    with pytest.raises(BadBudget, match="no budget"):
        parse_budgets([])
