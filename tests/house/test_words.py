"""One word, one idea: names of classes and functions, and what is left to a policy to say."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted([*(ROOT / "h2o_theory").rglob("*.py"), *(ROOT / "paper_checks").rglob("*.py")])
NODES = [(path, node) for path in MODULES for node in ast.walk(ast.parse(path.read_text()))]

VAGUE = re.compile(r"_*(checked|refuse|settle|usable)_")
NOUNS = {"share", "one_of", "whole_number"}
POLICIES = {"full", "optimum", "h2o", "recent", "sink", "random", "schedule"}


PENDING = {
    "classes": {"Schedule", "Statement"},
    "functions": {
        "concave.py:usable_problem",
        "conditions.py:share",
        "pooled.py:_usable_total",
        "repair.py:settle_excess",
        "results.py:refuse_existing",
        "table.py:share",
    },
    "asked": {"checks.py"},
}
"""What is still to be rebuilt; nothing may be added."""


def classes_of_one_name(nodes):
    """Names of public classes that occur more than once; a kernel's ``Settings`` are its own."""
    names = Counter(
        node.name
        for _, node in nodes
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    del names["Settings"]
    return {name for name, count in names.items() if count > 1}


def vague_functions(nodes):
    """Functions whose name does not say what they return or that they raise."""
    return {
        f"{path.name}:{node.name}"
        for path, node in nodes
        if isinstance(node, ast.FunctionDef) and (VAGUE.match(node.name) or node.name in NOUNS)
    }


def asked_of_a_policy(nodes):
    """Places that ask by ``getattr`` or ``hasattr`` what the contract lets every policy say."""
    return {
        path.name
        for path, node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("getattr", "hasattr")
        and re.search(r"\bpolicy\b", ast.unparse(node.args[0]))
    }


def policies_by_name(nodes):
    """Comparisons of a policy's name or kind with a word: its class should say it instead."""
    found = set()
    for path, node in nodes:
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        words = {
            item.value
            for side in sides
            for item in ast.walk(side)
            if isinstance(item, ast.Constant) and isinstance(item.value, str)
        }
        asked = any(
            re.search(r"\b(policy|cls|self|run)\b.*\.(name|kind)$", ast.unparse(side))
            for side in sides
        )
        if asked and words & (POLICIES | {"reference"}):
            found.add(f"{path.relative_to(ROOT).as_posix()}")
    return found


def nodes_of(text):
    return [(Path("made-up.py"), node) for node in ast.walk(ast.parse(text))]


@pytest.mark.parametrize(
    "check, text",
    [
        (classes_of_one_name, "class A: pass\nclass A: pass"),
        (vague_functions, "def _checked_parts(): pass"),
        (vague_functions, "def share(): pass"),
        (asked_of_a_policy, "getattr(task.policy, 'nested', False)"),
    ],
)
def test_each_check_can_fail(check, text):
    assert check(nodes_of(text))


def test_a_policy_by_name_is_found():
    path = ROOT / "h2o_theory" / "x.py"
    for text in ("policy.name == 'full'", "task.policy.name in ('full', 'h2o')"):
        assert policies_by_name([(path, node) for _, node in nodes_of(text)])


def test_no_two_classes_of_one_name():
    assert classes_of_one_name(NODES) == PENDING["classes"]


def test_functions_say_what_they_return_or_that_they_raise():
    assert vague_functions(NODES) == PENDING["functions"]


def test_nothing_is_asked_of_a_policy_that_the_contract_does_not_declare():
    assert asked_of_a_policy(NODES) == PENDING["asked"]


def test_no_policy_is_special_by_its_name():
    assert policies_by_name(NODES) == set()


def test_no_test_imports_from_another():
    tests = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                assert node.module.split(".")[-1] not in tests, f"{path.name} imports {node.module}"
            if isinstance(node, ast.Import):
                names = {alias.name.split(".")[-1] for alias in node.names}
                assert not names & tests, path.name
