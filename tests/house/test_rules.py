"""The rules stand beside each other: what two of them share is below, in a room of its own."""

import ast
from pathlib import Path

import pytest

import h2o_theory.policies.rules

RULES = Path(h2o_theory.policies.rules.__path__[0])


@pytest.mark.parametrize("path", sorted(RULES.rglob("*.py")), ids=lambda path: path.stem)
def test_no_rule_imports_a_rule_of_its_folder(path):
    """Released code may build on the rule that it departs from."""
    tree = ast.parse(path.read_text())
    found = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    folder = ".".join(path.relative_to(RULES.parents[2]).parent.parts)
    own = {name for name in found if name.rpartition(".")[0] == folder}
    assert not own, own
    assert path.parent.name == "released" or not any("released" in name for name in found)
